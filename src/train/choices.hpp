// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/record/metrics.hpp"
#include "trireme/tokenizer/tokenizer.hpp"
#include "trireme/train/engine/job.hpp"

/// Multiple choice as EleutherAI's lm-evaluation-harness scores it (lm_eval/api/task.py, api/model.py): which ending
/// does the model find likeliest after its context?
namespace trireme::train {

struct Question {
  std::string context;
  std::vector<std::string> endings;
  std::size_t label = 0;  ///< index of the right ending
};

/// JSON lines with the texts `context` (or `ctx`, as in HellaSwag's files) and `endings`, and `label`, a number or its
/// text. `name` identifies the file in messages. Throws DataError with the line.
[[nodiscard]] std::vector<Question> parse_questions(std::string_view text, const std::string& name);
/// The same of a file.
[[nodiscard]] std::vector<Question> read_questions(const std::string& path);
/// The first `limit` of a file; 0: all.
[[nodiscard]] std::vector<Question> first_questions(const std::string& path, std::int64_t limit);

/// A context followed by an ending, as tokens.
struct Choice {
  std::vector<std::int32_t> ids;
  std::size_t context = 0;  ///< tokens before the ending
  friend bool operator==(const Choice&, const Choice&) = default;
};
/// The tokens of `context`, a blank and `ending`: those after the tokens of `context` alone are the ending's. Where
/// there are none, as the ending merges into the context's last token, the tokens of `context` and of the ending
/// encoded separately. At most `longest` + 1 are kept, the last ones.
[[nodiscard]] Choice choice_of(const tokenizer::Tokenizer& tokenizer, const std::string& context,
                               const std::string& ending, std::size_t longest);

/// Whether the likeliest ending is the right one, and the one whose log-likelihood over its length in characters is
/// highest. The first of equal ones counts.
struct Picked {
  bool right = false, right_norm = false;
};
[[nodiscard]] Picked pick(const Question& question, std::span<const double> log_likelihoods);

/// The choices of all endings of all questions, in order. name: of the file, in messages. Throws DataError naming the
/// question.
[[nodiscard]] std::vector<Choice> choices_of(const tokenizer::Tokenizer& tokenizer,
                                             const std::vector<Question>& questions, std::size_t longest,
                                             const std::string& name);

/// The log-likelihoods of `choices`, on every rank; none if `goes_on` ended them. Each dp rank computes one at a time.
/// goes_on: called between, with the number of those that are done; returns the same on every rank. name: of the file,
/// in messages. Collective over the job, as Job::row_loss. Throws NumericsError, on every rank, where one is not
/// finite.
[[nodiscard]] std::optional<std::vector<double>> score_choices(Job& job, std::span<const Choice> choices,
                                                               const std::string& name,
                                                               const std::function<bool(std::size_t)>& goes_on);

/// log_likelihoods: of the endings of all questions, in order.
[[nodiscard]] ChoiceScores scores_of(std::span<const Question> questions, std::span<const double> log_likelihoods);

/// Choices as text, to be broadcast, and back.
[[nodiscard]] std::string encode(std::span<const Choice> choices);
[[nodiscard]] std::vector<Choice> decode_choices(const std::string& text);

}  // namespace trireme::train
