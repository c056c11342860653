// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/tokenizer/tokenizer.hpp"

namespace trireme::tokenizer {

/// Identifies the tokenizer of a token file.
struct Identity {
  std::string spec;         ///< as it was given: "hf:tokenizer.json"
  std::string fingerprint;  ///< vocabulary_fingerprint
  std::string definition;   ///< Tokenizer::definition; of sidecars of earlier builds empty
  std::string library;      ///< name and version of the code that computes the ids
};

/// SHA-256 of the vocabulary in the order of ids (each piece after its length in bytes, a little-endian uint64), then
/// of the ids (little-endian int32) of a fixed text: 64 hexadecimal digits. Two tokenizers with the same fingerprint
/// produce the same ids, even if their files differ in format or white space.
[[nodiscard]] std::string vocabulary_fingerprint(const Tokenizer& tokenizer);

/// Difference of the ids that `other` and `known` produce: "has 12 ids instead of 10"; "" if they are the same.
/// Compares pieces and splitting rules of tokenizers of one scheme ("hf:" or "spm:"), otherwise the ids of a fixed
/// text.
[[nodiscard]] std::string difference(const std::string& known_spec, const Tokenizer& known,
                                     const std::string& other_spec, const Tokenizer& other);

/// Identity of `tokenizer`, which was made from `spec`.
[[nodiscard]] Identity identity_of(const std::string& spec, const Tokenizer& tokenizer);

}  // namespace trireme::tokenizer
