// SPDX-License-Identifier: Apache-2.0
#include "train/choices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/io/json.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/input_file.hpp"
#include "trireme/base/text.hpp"

namespace trireme::train {
namespace {

constexpr std::int64_t most_question_bytes = std::int64_t{1} << 30;

Question question_of(const nlohmann::json& object, const std::string& where) {
  const auto wrong = [&](const char* what) {
    return DataError(
        fmt::format("{}: {}; a line is such as {{\"context\": \"The cat\", \"endings\": [\"sat.\", \"flew.\"], "
                    "\"label\": 0}}",
                    where, what));
  };
  if (!object.is_object()) throw wrong("not a JSON object");
  const char* key = object.contains("context") ? "context" : "ctx";
  if (!object.contains(key) || !object[key].is_string()) throw wrong("\"context\" is missing or not a string");
  if (!object.contains("endings") || !object["endings"].is_array() || object["endings"].empty())
    throw wrong("\"endings\" is missing or not a list");
  Question question{.context = object[key].get<std::string>(), .endings = {}};
  for (const nlohmann::json& ending : object["endings"]) {
    if (!ending.is_string() || ending.get_ref<const std::string&>().empty())
      throw wrong("an ending is empty or not a string");
    question.endings.push_back(ending.get<std::string>());
  }
  const nlohmann::json label = object.value("label", nlohmann::json());
  const std::string text = label.is_string() ? label.get<std::string>() : label.dump();
  std::size_t index = question.endings.size();
  for (std::size_t i = 0; i < question.endings.size(); ++i)
    if (text == fmt::format("{}", i)) index = i;
  if (index == question.endings.size()) throw wrong("\"label\" is not the number of an ending, from 0");
  question.label = index;
  return question;
}

/// Whether Python's str.isspace() is true for a code point: characters that its rstrip() removes.
bool is_blank(std::uint32_t point) {
  return (point >= 0x09 && point <= 0x0D) || (point >= 0x1C && point <= 0x20) || point == 0x85 || point == 0xA0 ||
         point == 0x1680 || (point >= 0x2000 && point <= 0x200A) || point == 0x2028 || point == 0x2029 ||
         point == 0x202F || point == 0x205F || point == 0x3000;
}

/// Bytes of `text` without the blanks at its end, as Python's rstrip() leaves it. Bytes that are no UTF-8 are no
/// blanks.
std::size_t size_without_end_blanks(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    std::size_t begin = end - 1;
    while (begin > 0 && end - begin < 3 && (text[begin] & 0xC0) == 0x80) --begin;  // blanks have at most three bytes
    const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])); };
    const std::size_t size = end - begin;
    std::uint32_t point = 0;
    if (size == 1 && byte(begin) < 0x80) point = byte(begin);
    if (size == 2 && (byte(begin) & 0xE0) == 0xC0) point = (byte(begin) & 0x1F) << 6 | (byte(begin + 1) & 0x3F);
    if (size == 3 && (byte(begin) & 0xF0) == 0xE0)
      point = (byte(begin) & 0x0F) << 12 | (byte(begin + 1) & 0x3F) << 6 | (byte(begin + 2) & 0x3F);
    if (!is_blank(point)) break;
    end = begin;
  }
  return end;
}

/// Python's len(): code points.
double characters(std::string_view text) {
  return static_cast<double>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

/// The row whose targets are the ending's tokens; one without targets for a rank that has no choice left.
data::MicrobatchTokens row_of(const Choice* choice) {
  if (choice == nullptr) return {.inputs = {0}, .targets = {data::ignored_target}};
  data::MicrobatchTokens row{.inputs = {choice->ids.begin(), choice->ids.end() - 1},
                             .targets = {choice->ids.begin() + 1, choice->ids.end()}};
  for (std::size_t i = 0; i + 1 < choice->context; ++i) row.targets[i] = data::ignored_target;
  row.counted = static_cast<std::int64_t>(choice->ids.size() - std::max<std::size_t>(choice->context, 1));
  return row;
}

}  // namespace

std::vector<Question> parse_questions(std::string_view text, const std::string& name) {
  std::vector<Question> questions;
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (trim(line).empty()) continue;
    const std::string where = fmt::format("{}, line {}", name, number);
    const nlohmann::json object = io::parse_or_discard(line);
    questions.push_back(question_of(object, where));
  }
  if (questions.empty()) throw DataError(fmt::format("{} holds no questions", name));
  return questions;
}

std::vector<Question> read_questions(const std::string& path) {
  return parse_questions(io::InputFile(path, "questions").read_whole(most_question_bytes), path);
}

std::vector<Question> first_questions(const std::string& path, std::int64_t limit) {
  std::vector<Question> questions = read_questions(path);
  if (limit > 0 && std::ssize(questions) > limit) questions.resize(static_cast<std::size_t>(limit));
  return questions;
}

Choice choice_of(const tokenizer::Tokenizer& tokenizer, const std::string& context, const std::string& ending,
                 std::size_t longest) {
  const std::size_t kept = size_without_end_blanks(context);  // the blanks at its end belong to the ending
  const std::vector<std::int32_t> before = tokenizer.encode(context.substr(0, kept));
  std::vector<std::int32_t> whole = tokenizer.encode(context + " " + ending);
  if (whole.size() <= before.size()) {  // the ending merges into the context's last token: it is encoded alone
    const std::vector<std::int32_t> alone = tokenizer.encode(context.substr(kept) + " " + ending);
    whole = before;
    whole.insert(whole.end(), alone.begin(), alone.end());
  }
  Choice choice{.ids = tokenizer.document_begin(), .context = 0};
  if (choice.ids.empty() && before.empty()) choice.ids.push_back(tokenizer.document_end());
  choice.context = choice.ids.size() + before.size();
  choice.ids.insert(choice.ids.end(), whole.begin(), whole.end());
  if (choice.ids.size() > longest + 1) {
    const std::size_t cut = choice.ids.size() - (longest + 1);
    choice.ids.erase(choice.ids.begin(), choice.ids.begin() + static_cast<std::ptrdiff_t>(cut));
    choice.context -= std::min(cut, choice.context);
  }
  return choice;
}

Picked pick(const Question& question, std::span<const double> log_likelihoods) {
  const auto best = [&](auto score) {
    std::size_t chosen = 0;
    for (std::size_t i = 1; i < log_likelihoods.size(); ++i)
      if (score(i) > score(chosen)) chosen = i;
    return chosen == question.label;
  };
  return {.right = best([&](std::size_t i) { return log_likelihoods[i]; }),
          .right_norm = best([&](std::size_t i) { return log_likelihoods[i] / characters(question.endings[i]); })};
}

std::vector<Choice> choices_of(const tokenizer::Tokenizer& tokenizer, const std::vector<Question>& questions,
                               std::size_t longest, const std::string& name) {
  std::vector<Choice> choices;
  for (std::size_t i = 0; i < questions.size(); ++i)
    for (const std::string& ending : questions[i].endings) {
      choices.push_back(choice_of(tokenizer, questions[i].context, ending, longest));
      if (choices.back().ids.size() > std::max<std::size_t>(choices.back().context, 1)) continue;
      throw DataError(
          fmt::format("{}, question {}: the ending {} has no token under this tokenizer, so it has no log-likelihood; "
                      "leave the question out, or give another tokenizer",
                      name, i + 1, io::in_quotes(ending)));
    }
  return choices;
}

std::optional<std::vector<double>> score_choices(Job& job, std::span<const Choice> choices, const std::string& name,
                                                 const std::function<bool(std::size_t)>& goes_on) {
  const data::BatchShape shape = job.batch_shape();
  const auto ranks = static_cast<std::size_t>(shape.dp_size);
  std::vector<double> log_likelihoods(choices.size());
  for (std::size_t first = 0; first < choices.size(); first += ranks) {
    const std::size_t mine = first + static_cast<std::size_t>(shape.dp_rank);
    const double loss = job.row_loss(row_of(mine < choices.size() ? &choices[mine] : nullptr));
    if (mine < choices.size()) log_likelihoods[mine] = -loss;
    if (!goes_on(std::min(first + ranks, choices.size()))) return std::nullopt;
  }
  job.sum_of_rows(log_likelihoods);
  const auto broken = std::ranges::find_if_not(log_likelihoods, [](double value) { return std::isfinite(value); });
  if (broken != log_likelihoods.end())
    throw NumericsError(
        fmt::format("{}: the log-likelihood of choice {} is {}: the weights are not finite, or overflow; evaluate an "
                    "earlier checkpoint",
                    name, broken - log_likelihoods.begin() + 1, *broken));
  return log_likelihoods;
}

ChoiceScores scores_of(std::span<const Question> questions, std::span<const double> log_likelihoods) {
  std::int64_t right = 0, right_norm = 0;
  std::size_t begin = 0;
  for (const Question& question : questions) {
    const Picked picked = pick(question, log_likelihoods.subspan(begin, question.endings.size()));
    right += picked.right ? 1 : 0;
    right_norm += picked.right_norm ? 1 : 0;
    begin += question.endings.size();
  }
  const auto count = static_cast<double>(questions.size());
  return {.accuracy = static_cast<double>(right) / count,
          .accuracy_norm = static_cast<double>(right_norm) / count,
          .questions = std::ssize(questions)};
}

std::string encode(std::span<const Choice> choices) {
  std::vector<std::int32_t> words;
  for (const Choice& choice : choices) {
    words.push_back(static_cast<std::int32_t>(choice.ids.size()));
    words.push_back(static_cast<std::int32_t>(choice.context));
    words.insert(words.end(), choice.ids.begin(), choice.ids.end());
  }
  return {reinterpret_cast<const char*>(words.data()), words.size() * sizeof(std::int32_t)};
}

std::vector<Choice> decode_choices(const std::string& text) {
  std::vector<std::int32_t> words(text.size() / sizeof(std::int32_t));
  std::memcpy(words.data(), text.data(), words.size() * sizeof(std::int32_t));
  std::vector<Choice> choices;
  for (auto at = words.begin(); at != words.end();) {
    const std::int32_t size = *at++;
    Choice& choice = choices.emplace_back();
    choice.context = static_cast<std::size_t>(*at++);
    choice.ids.assign(at, at + size);
    at += size;
  }
  return choices;
}

}  // namespace trireme::train
