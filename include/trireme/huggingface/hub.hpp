// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace trireme::huggingface {

/// Instruction to download `name`, as the end of a message about a folder that does not exist: "; if it is a repository
/// of the Hugging Face Hub: hf download org/model --local-dir model"; "" if `name` cannot be one (org/model, without
/// other parts).
[[nodiscard]] std::string hub_download(std::string_view name);

}  // namespace trireme::huggingface
