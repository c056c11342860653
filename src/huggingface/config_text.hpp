// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/huggingface/huggingface.hpp"

namespace trireme::huggingface {

/// config.json in the dialect of transformers 4, which transformers 5 reads as well (the reverse does not hold).
[[nodiscard]] std::string hf_config_text(const model::Model& model, const HfWriteOptions& options);

/// generation_config.json: where generation starts and stops. Without it transformers takes them from config.json.
[[nodiscard]] std::string hf_generation_config_text(const HfWriteOptions& options);

}  // namespace trireme::huggingface
