// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace trireme {

/// `text` as one word of a shell's command line: in single quotes where it needs them.
[[nodiscard]] std::string shell_word(std::string_view text);

}  // namespace trireme
