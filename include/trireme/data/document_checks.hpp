// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "trireme/config/run_config.hpp"
#include "trireme/data/dataset.hpp"

namespace trireme::data {

/// Throws ConfigError for a packed file (data.packing = "best_fit") with neither a sidecar nor an index.
void require_known_documents(const TokenFile& file);

/// Throws ConfigError when data.document_mask is set and document ends are unknown: a file has neither a sidecar nor an
/// index, and data.document_end is not set, or data.packing is "best_fit".
void require_document_ends(const config::Data& data, std::span<const Dataset> datasets);

/// Warns of token files whose documents are known by `document_end` alone
/// (TokenFile::has_document_ends is false) if that id is a doubtful border: the tokens have
/// a mask, as chats do, whose tokenizers also end messages with it; a sample of up to 3 Mi
/// tokens does not have it; or has it twice in a row. Throws DataError as TokenFile::read.
void warn_of_document_ends(std::span<const Dataset> datasets, std::optional<std::int64_t> document_end);

}  // namespace trireme::data
