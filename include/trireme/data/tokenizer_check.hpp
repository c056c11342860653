// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "trireme/data/dataset.hpp"
#include "trireme/tokenizer/tokenizer.hpp"

namespace trireme::data {

/// Throws DataError when the sidecar of a file has another tokenizer than `tokenizer`. described: the latter in the
/// message, such as "data.tokenizer is hf:model". remedy: the end of the message.
void require_tokenizer(std::span<const Dataset> datasets, const tokenizer::Tokenizer& tokenizer,
                       const std::string& described, const std::string& remedy);

/// Warns of files whose sidecar has the vocabulary of `tokenizer`, made from `spec`, but possibly other ids: other
/// first or last tokens of documents, other merges or rules of text, or other versions of libraries, by which text with
/// two tokenizations of the same score may have other ids.
void warn_of_other_ids(std::span<const Dataset> datasets, const std::string& spec,
                       const tokenizer::Tokenizer& tokenizer);

}  // namespace trireme::data
