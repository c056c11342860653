// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace trireme::report {

/// The page's style sheet: light, dark where the browser is, and light on paper. Lines have the classes l0, l1, ... and
/// areas f0, f1, ... up to palette_size.
[[nodiscard]] std::string style_sheet();

}  // namespace trireme::report
