// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/tokenizer/tokenizer.hpp"

namespace trireme::tokenizer {

/// Identifies the tokenizer of a token file.
struct Identity {
  std::string spec;         ///< as it was given: "hf:tokenizer.json"
  std::string fingerprint;  ///< vocabulary_fingerprint
  std::string library;      ///< name and version of the code that computes the ids
};

/// SHA-256 of the vocabulary in the order of ids (each piece behind its length in bytes, a little-endian uint64), then
/// of the ids (little-endian int32) of a fixed text: 64 hexadecimal digits. Two tokenizers with the same fingerprint
/// give the same ids, also where their files differ in format or white space.
[[nodiscard]] std::string vocabulary_fingerprint(const Tokenizer& tokenizer);

/// Identity of `tokenizer`, which was made from `spec`.
[[nodiscard]] Identity identity_of(const std::string& spec, const Tokenizer& tokenizer);

}  // namespace trireme::tokenizer
