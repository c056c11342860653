// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace trireme::tokenizer::hf {

/// The pattern of PCRE2 (with UTF and UCP) with the same matches as `pattern` in Oniguruma, the engine of the
/// `tokenizers` package: its \s, \w and \d, and scripts without their extensions. Throws std::invalid_argument with the
/// reason when a construct has another meaning there and none here.
[[nodiscard]] std::string pcre2_pattern(std::string_view pattern);

}  // namespace trireme::tokenizer::hf
