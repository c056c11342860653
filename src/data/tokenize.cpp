// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/tokenize.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "data/text_check.hpp"
#include "data/token_writer.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/input_file.hpp"

namespace trireme::data {
namespace {

void check_arguments(const std::vector<std::string>& inputs, const std::string& output) {
  if (inputs.empty()) throw ConfigError("tokenize has no text files; name at least one");
  for (const std::string& input : inputs) {
    std::error_code error;
    if (std::filesystem::equivalent(input, output, error)) {
      throw ConfigError(fmt::format("tokenize would replace its own input {}; choose another output", input));
    }
  }
}

/// A document that is encoded at once is held in memory, with its tokens.
constexpr std::size_t largest_whole_document = std::size_t{1} << 30;

/// Encodes one document, chunk by chunk where the tokenizer allows that; returns its bytes.
std::int64_t encode_document(const tokenizer::Tokenizer& tokenizer, io::InputFile& file, TokenWriter& writer,
                             std::size_t chunk_bytes) {
  TextCheck check(file.name());
  std::string text;  // read but not yet encoded
  std::int64_t encoded = 0;
  writer.append(tokenizer.document_begin());
  while (true) {
    const std::size_t held = text.size();
    if (held > largest_whole_document)
      throw DataError(
          fmt::format("{} is one document of more than 1 GiB, which this tokenizer encodes as a whole; "
                      "split the file",
                      file.name()));
    text.resize(held + chunk_bytes);
    const std::size_t got = file.read_next(std::span(text).subspan(held));
    text.resize(held + got);
    if (got > 0) check.add(std::string_view(text).substr(held));
    const std::size_t cut = got == 0 ? text.size() : tokenizer.encodes_parts() ? text_cut(text) : 0;
    const auto piece = std::string_view(text).substr(0, cut);
    if (!piece.empty()) writer.append(encoded == 0 ? tokenizer.encode(piece) : tokenizer.encode_continuation(piece));
    encoded += static_cast<std::int64_t>(cut);
    text.erase(0, cut);
    if (got == 0) break;
  }
  check.finish();
  const std::int32_t end = tokenizer.document_end();
  writer.append({&end, 1});
  writer.end_document();
  return encoded;
}

}  // namespace

std::size_t text_cut(std::string_view text) {
  for (const char end : {'\n', ' '}) {
    const std::size_t at = text.rfind(end);
    if (at != std::string_view::npos && at > 0) return at;
  }
  // Steps back over at most one unfinished UTF-8 character.
  for (std::size_t back = 1; back <= std::min<std::size_t>(4, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;
    const std::size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return length > back ? text.size() - back : text.size();
  }
  return text.size();
}

TokenizeCounts tokenize_files(const tokenizer::Tokenizer& tokenizer, const std::vector<std::string>& inputs,
                              const std::string& output, std::size_t chunk_bytes) {
  check_arguments(inputs, output);
  TokenWriter writer(output, tokenizer.vocab_size());
  TokenizeCounts counts;
  for (const std::string& input : inputs) {
    io::InputFile file(input, "text file", io::Pipes::taken);
    counts.text_bytes += encode_document(tokenizer, file, writer, chunk_bytes);
    ++counts.documents;
  }
  writer.finish();
  counts.tokens = writer.tokens();
  counts.type = writer.type();
  counts.tokens_path = writer.path();
  return counts;
}

}  // namespace trireme::data
