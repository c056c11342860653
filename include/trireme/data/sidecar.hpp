// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/tokenizer/identity.hpp"

namespace trireme::data {

/// A text file that was tokenized.
struct SidecarSource {
  std::string name;  ///< "-" for standard input
  std::int64_t bytes = 0;
  std::string xxh3;  ///< of its bytes as they are stored, compressed or not
};

/// Describes the token file FILE in FILE.meta: one JSON object, which `trireme tokenize` writes last. A token file
/// without it is of another program, or unfinished. FILE.ends holds two little-endian int64 for each document, in
/// order: its end in tokens and its end in bytes of text, both counted from the beginning of the file.
struct Sidecar {
  std::string dtype;  ///< "uint16" or "uint32"
  std::int64_t tokens = 0;
  std::int64_t documents = 0;
  std::int64_t targets = 0;     ///< tokens that count in the loss: all without a mask
  std::int64_t text_bytes = 0;  ///< of the text in UTF-8, before normalization and without marks that were added to it
  std::optional<std::int64_t> vocab_size, document_begin, document_end;
  tokenizer::Identity tokenizer;
  std::string options = "{}";  ///< a JSON object: other settings that determine the ids
  std::vector<SidecarSource> sources;
  std::string tokens_xxh3, ends_xxh3;
  std::string mask_xxh3;  ///< empty without a mask
};

/// FILE.meta and FILE.ends of the token file FILE (the .bin of a Megatron pair).
[[nodiscard]] std::string sidecar_path(const std::string& tokens_path);
[[nodiscard]] std::string ends_path(const std::string& tokens_path);

/// Reads FILE.meta of the token file FILE. Keys that are not known are ignored. Throws DataError when it cannot be
/// read, is no JSON, lacks a key, or is of another version.
[[nodiscard]] Sidecar read_sidecar(const std::string& tokens_path);

/// The text of FILE.meta.
[[nodiscard]] std::string to_json(const Sidecar& sidecar);

}  // namespace trireme::data
