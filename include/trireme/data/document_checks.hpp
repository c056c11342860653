// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "trireme/config/run_config.hpp"
#include "trireme/data/dataset.hpp"

namespace trireme::data {

/// Throws ConfigError when data.document_mask is set and neither a file's sidecar or index nor data.document_end says
/// where its documents end.
void require_document_ends(const config::Data& data, std::span<const Dataset> datasets);

/// Warns of token files whose documents are known by `document_end` alone (TokenFile::has_document_ends is false) and
/// where that id is a doubtful border: a mask belongs to the tokens, as to chats, whose tokenizers also end
/// messages with it; a sample of up to 3 Mi tokens does not have it; or it has two of them in a row. Throws DataError
/// as TokenFile::read.
void warn_of_document_ends(std::span<const Dataset> datasets, std::optional<std::int64_t> document_end);

}  // namespace trireme::data
