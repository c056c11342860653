// SPDX-License-Identifier: Apache-2.0
#include "data/text_to_tokens.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "data/text/check.hpp"
#include "data/text/conversation.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/output.hpp"
#include "trireme/base/log.hpp"
#include "trireme/base/sha256.hpp"
#include "trireme/data/token_file.hpp"
#include "trireme/tokenizer/identity.hpp"

namespace trireme::data {
namespace {

/// A document that is encoded at once is held in memory, with its tokens.
constexpr std::size_t largest_whole_document = std::size_t{1} << 30;
/// Lines are handed to the threads in batches of about this size.
constexpr std::size_t batch_bytes = std::size_t{1} << 18;

/// Every file that writing `output` replaces or removes; a link under a temporary name is removed itself.
std::vector<std::string> written_for(const std::string& output) {
  std::vector<std::string> files{output};
  std::string tokens = output;
  if (output.ends_with(".idx")) files.push_back(tokens = output.substr(0, output.size() - 4) + ".bin");
  for (const std::string& more : {mask_path(tokens), ends_path(tokens), sidecar_path(tokens)}) files.push_back(more);
  for (std::size_t i = 0, finished = files.size(); i < finished; ++i) {
    const std::string partial = files[i] + ".partial";
    std::error_code none;
    if (!std::filesystem::is_symlink(std::filesystem::symlink_status(partial, none))) files.push_back(partial);
  }
  return files;
}

}  // namespace

void check_tokenize_arguments(const std::vector<std::string>& inputs, const TokenizeOptions& options,
                              const std::string& output) {
  if (inputs.empty()) throw ConfigError("tokenize has no text files; name at least one");
  std::vector<std::string> read = inputs;
  std::ranges::replace(read, std::string("-"), std::string("/dev/stdin"));
  std::vector<std::string> outputs{output};
  if (options.validation > 0) outputs.push_back(validation_path(output));
  for (const std::string& path : outputs)
    for (const std::string& file : written_for(path)) {
      io::check_output_is_no_input("tokenize", file, read);
      io::check_output_is_no_input("tokenize", file, options.tokenizer_files);
    }
}

Sidecar origin_of(const tokenizer::Tokenizer& tokenizer, const TokenizeOptions& options) {
  Sidecar origin{.dtype = {},
                 .vocab_size = tokenizer.vocab_size(),
                 .document_begin = {},
                 .document_end = tokenizer.document_end(),
                 .tokenizer = tokenizer::identity_of(options.spec, tokenizer),
                 .sources = {},
                 .tokens_xxh3 = {},
                 .ends_xxh3 = {},
                 .mask_xxh3 = {}};
  if (const auto begin = tokenizer.document_begin(); begin.size() == 1) origin.document_begin = begin.front();
  return origin;
}

std::string identity_of_ids(const tokenizer::Tokenizer& tokenizer, const TokenizeOptions& options) {
  constexpr std::size_t digits = 32;
  const tokenizer::Identity identity = tokenizer::identity_of(options.spec, tokenizer);
  Sha256 hash;
  for (const std::string& text : {identity.fingerprint, identity.definition, identity.library, options.field,
                                  options.response, options.chat, std::string(options.plain ? "plain" : "")})
    hash.add(fmt::format("{} {}\n", text.size(), text));
  return hash.hex().substr(0, digits);
}

Documents::Documents(const tokenizer::Tokenizer& tokenizer, const std::string& output, const TokenizeOptions& options)
    : options_(options),
      masked_(!options.response.empty() || !options.chat.empty()),
      train_(output, tokenizer.vocab_size(), masked_),
      seen_(static_cast<std::size_t>(tokenizer.vocab_size())) {
  if (options.validation > 0) validation_.emplace(validation_path(output), tokenizer.vocab_size(), masked_);
}

void Documents::add(const Encoded& parts) {
  for (const text::EncodedPart& part : parts) {
    counts_.text_bytes += part.text_bytes;
    if (part.empty) {
      ++counts_.empty_documents;
      continue;
    }
    if (!part.bad.empty()) {
      skip_bad(part.bad);
      continue;
    }
    TokenWriter& writer = validates() ? *validation_ : train_;
    writer.append(part.ids, part.counts);
    (&writer == &train_ ? counts_.counted_tokens : validation_counted_) += std::ranges::count(part.counts, 1);
    for (const std::int32_t id : part.ids) seen_[static_cast<std::size_t>(id)] = true;
    document_tokens_ += static_cast<std::int64_t>(part.ids.size());
    document_bytes_ += part.text_bytes;
    if (part.ends) end_document(writer);
  }
}

void Documents::require_documents(const Sidecar& origin) const {
  if (counts_.documents > 0) return;
  const std::string& first = origin.sources.front().name;
  const std::size_t files = origin.sources.size();
  throw DataError(fmt::format("{}{} {} no document{}: nothing is written; check the paths",
                              first == "-" ? "standard input" : "text file " + first,
                              files == 1 ? "" : fmt::format(" and {} more", files - 1), files == 1 ? "holds" : "hold",
                              counts_.empty_documents == 0 ? "" : " with text"));
}

TokenizeCounts Documents::finish(Sidecar origin) {
  warn_of_bad_lines();
  require_documents(origin);
  if (validation_ && (counts_.validation_documents == 0 || counts_.validation_documents == counts_.documents))
    throw ConfigError(fmt::format(
        "--validation {} leaves none of {} document{} for {}; choose another share, or tokenize a separate file",
        options_.validation, counts_.documents, counts_.documents == 1 ? "" : "s",
        counts_.validation_documents == 0 ? "validation" : "training"));
  origin.options = options_of(validation_ ? "training" : "");
  if (masked_) {
    check_counted(counts_.counted_tokens, validation_ ? " of the training part" : "");
    if (validation_) check_counted(validation_counted_, " of the validation part");
  }
  train_.finish(origin);
  counts_.tokens = train_.tokens();
  counts_.type = train_.type();
  counts_.tokens_path = train_.path();
  if (validation_) {
    origin.options = options_of("validation");
    validation_->finish(std::move(origin));
    counts_.validation_tokens = validation_->tokens();
    counts_.validation_path = validation_->path();
  }
  counts_.distinct_ids = std::ranges::count(seen_, true);
  return counts_;
}

void Documents::warn_of_bad_lines() const {
  if (counts_.bad_lines == 0) return;
  log::warning(fmt::format("{} line{} cannot be read and {} left out (--skip-bad {}), the first:{}", counts_.bad_lines,
                           counts_.bad_lines == 1 ? "" : "s", counts_.bad_lines == 1 ? "is" : "are", options_.skip_bad,
                           first_bad_));
}

/// Sidecar::options of the part of the documents that a file holds.
std::string Documents::options_of(const std::string& part) const {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [key, value] :
       {std::pair{"field", options_.field}, {"response", options_.response}, {"chat", options_.chat}})
    if (!value.empty()) json[key] = value;
  if (options_.plain) json["plain"] = true;
  if (counts_.bad_lines > 0) json["skipped_lines"] = counts_.bad_lines;
  if (!part.empty()) {
    json["part"] = part;
    json["validation"] = options_.validation;
  }
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void check_bad_lines(std::int64_t bad, std::int64_t allowed, const std::string& why) {
  if (bad <= allowed) return;
  throw DataError(allowed == 0
                      ? fmt::format("{}; --skip-bad N (of data.train: #skip_bad=N) leaves out up to N such lines", why)
                      : fmt::format("{}; that is one more than --skip-bad {} leaves out", why, allowed));
}

void Documents::skip_bad(const std::string& why) {
  constexpr std::int64_t most_listed = 3;
  check_bad_lines(counts_.bad_lines + 1, options_.skip_bad, why);
  if (counts_.bad_lines++ < most_listed) first_bad_ += "\n  " + why;
}

void Documents::check_counted(std::int64_t counted, const std::string& part) const {
  if (counted > 0) return;
  throw DataError(fmt::format("no token{} counts in the loss: {}; nothing is written", part,
                              options_.chat.empty()
                                  ? fmt::format("no field \"{}\" of a line has text", options_.response)
                                  : "no conversation has a message of role assistant that is to be trained on"));
}

void Documents::end_document(TokenWriter& writer) {
  writer.end_document(std::exchange(document_bytes_, 0));
  if (validates()) ++counts_.validation_documents;
  ++counts_.documents;
  counts_.longest_document = std::max(counts_.longest_document, document_tokens_);
  document_tokens_ = 0;
}

TextReader::TextReader(const tokenizer::Tokenizer& tokenizer, const TokenizeOptions& options,
                       text::Ordered<Encoded>& work)
    : tokenizer_(tokenizer),
      options_(options),
      work_(work),
      marks_divide_(!options.chat.empty() && text::check_chat(options.chat, tokenizer)) {}

void TextReader::read(text::Stream& stream, const std::function<void(std::int64_t)>& advanced,
                      std::function<std::int64_t()> lines_before) const {
  if (options_.field.empty()) return read_document(stream, advanced);
  read_lines(stream, advanced, lines_before);
}

void TextReader::read_document(text::Stream& stream, const std::function<void(std::int64_t)>& advanced) const {
  text::TextCheck check(stream.name(), options_.plain);
  std::string text;  // read but not yet handed on
  bool begins = true;
  for (bool ended = false; !ended;) {
    const std::size_t held = text.size();
    if (held > largest_whole_document)
      throw DataError(
          fmt::format("{} is one document of more than 1 GiB, which this tokenizer encodes as a whole; split the file",
                      stream.name()));
    text.resize(held + options_.chunk_bytes);
    const std::size_t got = stream.read(std::span(text).subspan(held));
    text.resize(held + got);
    ended = got == 0;
    if (!ended) check.add(std::string_view(text).substr(held));
    const std::size_t cut = ended ? text.size() : tokenizer_.encodes_parts() ? text_cut(text) : 0;
    if (cut == 0 && !ended) continue;
    text::Part part{.text = text.substr(0, cut), .begins = begins, .ends = ended};
    work_.submit([&tokenizer = tokenizer_, part = std::move(part)] { return Encoded{text::encode(tokenizer, part)}; });
    begins = false;
    text.erase(0, cut);
    advanced(stream.consumed());
  }
  check.finish();
}

void TextReader::read_lines(text::Stream& stream, const std::function<void(std::int64_t)>& advanced,
                            const std::function<std::int64_t()>& lines_before) const {
  std::string lines;
  std::int64_t number = 1;
  for (bool ended = false; !ended;) {
    const std::size_t held = lines.size();
    lines.resize(held + batch_bytes);
    const std::size_t got = stream.read(std::span(lines).subspan(held));
    lines.resize(held + got);
    ended = got == 0;
    // The held bytes have no end of a line: only new ones are searched.
    const std::size_t last = std::string_view(lines).substr(held).rfind('\n');
    const std::size_t cut = ended ? lines.size() : last == std::string::npos ? 0 : held + last + 1;
    if (cut == 0) continue;
    if (number == 1 && !lines_before)  // no line of such a file can be read
      text::TextCheck(stream.name()).check_format(lines);
    text::Lines batch{.text = lines.substr(0, cut),
                      .field = options_.field,
                      .response = options_.response,
                      .chat = options_.chat,
                      .marks_divide = marks_divide_,
                      .name = stream.name(),
                      .first_number = number};
    number += std::count(batch.text.begin(), batch.text.end(), '\n');
    work_.submit([&tokenizer = tokenizer_, batch = std::move(batch), lines_before]() mutable {
      Encoded parts = text::encode(tokenizer, batch);
      if (!lines_before || std::ranges::all_of(parts, [](const auto& part) { return part.bad.empty(); })) return parts;
      batch.first_number += lines_before();  // messages have the number of their line in the file
      return text::encode(tokenizer, batch);
    });
    lines.erase(0, cut);
    advanced(stream.consumed());
  }
}

}  // namespace trireme::data
