// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/data/token_type.hpp"

/// Megatron-LM's `.idx` (megatron/core/datasets/indexed_dataset.py): which bytes of the `.bin` are which sequence.
/// Little-endian, no padding: "MMIDIDX\0\0", u64 version 1, u8 type code, u64 sequences S, u64 document entries D,
/// then int32[S] lengths in tokens, int64[S] byte offsets, int64[D] document starts, int8[S] modes if multimodal.
namespace trireme::data {

/// Summary of a checked index: its sequences are contiguous, so the token stream is the `.bin` from front to back.
struct MegatronIndex {
  TokenType type = TokenType::uint16;
  std::int64_t sequences = 0;
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  std::int64_t empty_sequences = 0;
};

/// Byte offsets of the arrays of an index.
struct MegatronIndexPlaces {
  std::int64_t offsets;          ///< int64[S]
  std::int64_t document_starts;  ///< int64[D]
};
[[nodiscard]] MegatronIndexPlaces places_of(const MegatronIndex& index);

/// Reads and checks `path` against the `.bin` of `bin_bytes` bytes: magic,
/// version, type, sizes, lengths, contiguous offsets, document starts. Throws
/// DataError with the file and the mistake. Memory does not grow with the index.
[[nodiscard]] MegatronIndex check_megatron_index(const std::string& path, std::int64_t bin_bytes);

/// The bytes of an index over sequences of `lengths` tokens; `document_starts` [documents + 1]: sequence each begins
/// at, S last.
[[nodiscard]] std::vector<char> megatron_index_bytes(TokenType type, std::span<const std::int32_t> lengths,
                                                     std::span<const std::int64_t> document_starts);

}  // namespace trireme::data
