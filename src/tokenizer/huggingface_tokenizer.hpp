// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "trireme/tokenizer/tokenizer.hpp"

namespace trireme::tokenizer {

/// The tokenizer.json of Hugging Face at `path`, or in the directory `path`. Throws DataError as `make_tokenizer` does.
[[nodiscard]] std::unique_ptr<Tokenizer> make_huggingface_tokenizer(const std::string& path);

}  // namespace trireme::tokenizer
