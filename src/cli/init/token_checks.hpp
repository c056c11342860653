// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/config/run_config.hpp"
#include "trireme/data/dataset.hpp"
#include "trireme/tokenizer/tokenizer.hpp"

/// Whether token files fit the model's vocabulary.
namespace trireme::cli {

/// Throws DataError if a file without header or index has two bytes a token, and the vocabulary has more ids than
/// two bytes hold.
void refuse_two_byte_tokens(const std::vector<config::TokenSource>& sources, config::TokenFormat format,
                            std::int64_t vocab_size);

/// Reads some samples, spread over the dataset, and warns where no id is above a tenth of the vocabulary. Throws
/// DataError for ids outside of the vocabulary, and where the sidecar of a file has another tokenizer. tokenizer: of
/// the run, made from `spec`; null if it has none.
void check_ids(const data::Dataset& dataset, const tokenizer::Tokenizer* tokenizer, const std::string& spec,
               std::int64_t vocab_size);

}  // namespace trireme::cli
