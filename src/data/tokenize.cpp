// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/tokenize.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "data/text/inputs.hpp"
#include "data/text_to_tokens.hpp"
#include "trireme/base/philox.hpp"

namespace trireme::data {

std::string validation_path(const std::string& output) {
  const std::filesystem::path path(output);
  return (path.parent_path() / (path.stem().string() + "-validation" + path.extension().string())).string();
}

bool is_validation(std::int64_t document, double share) {
  const auto begin_of = [share](double group) { return static_cast<std::int64_t>(std::ceil(group / share)); };
  auto group = std::floor(static_cast<double>(document) * share);
  if (begin_of(group) > document) --group;  // rounding
  const std::int64_t begin = begin_of(group), size = begin_of(group + 1) - begin;
  const double place = uniform_at(stream_key(0, "validation documents"), static_cast<std::uint64_t>(group));
  return document - begin == static_cast<std::int64_t>(place * static_cast<double>(size));
}

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

std::vector<std::string> tokenize_inputs(const std::vector<std::string>& arguments, const std::string& output,
                                         const TokenizeOptions& options) {
  std::vector<std::string> inputs = text::expand_inputs(arguments);
  check_tokenize_arguments(inputs, options, output);
  return inputs;
}

TokenizeCounts tokenize_files(const tokenizer::Tokenizer& tokenizer, const std::vector<std::string>& arguments,
                              const std::string& output, const TokenizeOptions& options) {
  const std::vector<std::string> inputs = tokenize_inputs(arguments, output, options);
  Documents documents(tokenizer, output, options);
  text::Ordered<Encoded> work(options.threads, [&](const Encoded& parts) { documents.add(parts); });
  const TextReader reader(tokenizer, options, work);
  std::int64_t finished_bytes = 0;
  Sidecar origin = origin_of(tokenizer, options);
  for (const std::string& input : inputs) {
    text::Stream stream(input);
    reader.read(stream, [&](std::int64_t consumed) {
      if (options.progress) options.progress(finished_bytes + consumed, documents.counts());
    });
    finished_bytes += stream.consumed();
    origin.sources.push_back({.name = input, .bytes = stream.consumed(), .xxh3 = stream.xxh3()});
  }
  work.finish();
  return documents.finish(std::move(origin));
}

}  // namespace trireme::data
