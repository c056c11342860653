// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "trireme/data/dataset.hpp"
#include "trireme/tokenizer/tokenizer.hpp"

namespace trireme::data {

/// Bytes of the text of the targets among the first `end` tokens; ends of documents have none. Throws DataError as
/// TokenFile::read.
[[nodiscard]] std::int64_t decoded_bytes(const TokenFile& file, std::int64_t end,
                                         const tokenizer::Tokenizer& tokenizer);

/// Bytes of the text whose tokens are the targets of the first `samples` samples, the denominator of bits per byte: by
/// the sidecars of files that are covered whole; else, or without a sidecar, of the tokens that `tokenizer` decodes, up
/// to 16 Mi of them. None if this is not known, some tokens do not count (masks), or the files are packed: then the
/// first token of each document is no target. tokenizer: null if there is none. Throws DataError as decoded_bytes.
[[nodiscard]] std::optional<std::int64_t> text_bytes(const Dataset& dataset, std::int64_t samples,
                                                     const tokenizer::Tokenizer* tokenizer);

}  // namespace trireme::data
