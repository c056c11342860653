// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/config/run_config.hpp"
#include "trireme/data/dataset.hpp"

/// Whether token files fit the model's vocabulary.
namespace trireme::cli {

/// Throws DataError where a file without header or index has two bytes a token, and the vocabulary has more ids than
/// two bytes hold.
void refuse_two_byte_tokens(const std::vector<config::TokenSource>& sources, config::TokenFormat format,
                            std::int64_t vocab_size);

/// Reads some samples, spread over the dataset, and warns where no id is above a tenth of the vocabulary. Throws
/// DataError for ids outside of the vocabulary.
void check_ids(const data::Dataset& dataset, std::int64_t vocab_size);

}  // namespace trireme::cli
