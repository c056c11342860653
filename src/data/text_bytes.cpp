// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/text_bytes.hpp"

#include <algorithm>
#include <vector>

namespace trireme::data {

std::int64_t decoded_bytes(const TokenFile& file, std::int64_t end, const tokenizer::Tokenizer& tokenizer) {
  constexpr std::int64_t at_once = 1 << 20;
  std::vector<std::int32_t> tokens, document;
  std::int64_t bytes = 0;
  const auto count = [&] {
    bytes += static_cast<std::int64_t>(tokenizer.decode(document).size());
    document.clear();
  };
  for (std::int64_t at = 1; at < end; at += at_once) {
    tokens.resize(static_cast<std::size_t>(std::min(at_once, end - at)));
    file.read(at, tokens);
    for (const std::int32_t token : tokens)
      if (token == tokenizer.document_end())
        count();
      else
        document.push_back(token);
  }
  count();
  return bytes;
}

std::optional<std::int64_t> text_bytes(const Dataset& dataset, std::int64_t samples,
                                       const tokenizer::Tokenizer* tokenizer) {
  constexpr std::int64_t most_decoded = std::int64_t{16} << 20;
  if (dataset.masked() || dataset.packing()) return std::nullopt;
  std::int64_t bytes = 0, decoded = 0;
  for (const TokenFile& file : dataset.files()) {
    const std::int64_t seq_len = dataset.seq_len();
    const std::int64_t of_file = std::min(samples, (file.tokens() - 1 + seq_len - 1) / seq_len);
    const std::int64_t end = std::min(file.tokens(), of_file * seq_len + 1);
    samples -= of_file;
    if (of_file == 0) continue;
    if (file.sidecar() && end == file.tokens()) {
      bytes += file.sidecar()->text_bytes;
      continue;
    }
    if (tokenizer == nullptr || (decoded += end) > most_decoded) return std::nullopt;
    bytes += decoded_bytes(file, end, *tokenizer);
  }
  return bytes > 0 ? std::optional(bytes) : std::nullopt;
}

}  // namespace trireme::data
