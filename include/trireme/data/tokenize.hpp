// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/data/token_type.hpp"
#include "trireme/tokenizer/tokenizer.hpp"

namespace trireme::data {

/// What `tokenize_files` wrote.
struct TokenizeCounts {
  std::int64_t documents = 0;
  std::int64_t text_bytes = 0;
  std::int64_t tokens = 0;  ///< the ends of the documents included
  TokenType type = TokenType::uint16;
  std::string tokens_path;  ///< of a Megatron pair its .bin
};

/// Bytes of text read at a time; memory does not grow with the files, unless the tokenizer encodes documents as a
/// whole.
inline constexpr std::size_t tokenize_chunk_bytes = 1 << 16;

/// Encodes text files, each one a document between the tokenizer's begin and end of a document, into `output`: Megatron
/// .bin/.idx when it ends in .idx, else raw uint16 or uint32 by the vocabulary (TokenWriter). `output` appears only
/// when complete. Throws DataError for a file that cannot be read or is no plain text (compressed, JSON lines, binary,
/// another encoding than UTF-8; a few bytes that are no UTF-8 are a warning), a document of more than 1 GiB that is
/// encoded as a whole, ConfigError when there is none or `output` is one of them, WriteError when writing fails (disk
/// full).
TokenizeCounts tokenize_files(const tokenizer::Tokenizer& tokenizer, const std::vector<std::string>& inputs,
                              const std::string& output, std::size_t chunk_bytes = tokenize_chunk_bytes);

/// How many bytes of `text` to encode now when more may follow: up to the last line end (which then begins the next
/// piece), else the last blank, else all whole UTF-8 characters.
[[nodiscard]] std::size_t text_cut(std::string_view text);

}  // namespace trireme::data
