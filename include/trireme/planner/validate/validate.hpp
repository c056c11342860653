// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace trireme::planner {

/// Predicts every row of a CSV of measured runs and compares: a line per row, then by family the rows used and left out
/// with reasons, and the errors of tokens/s and memory. Rows whose `use` is "calibrate" set one or two compute rates of
/// their source and GPU; the others are predicted. `fit`: also fits each large fleet's machine on half of its rows and
/// with each model left out, and prints the errors on the other rows. `name` identifies the file in messages. Throws
/// ConfigError with line and column.
[[nodiscard]] std::string validate(std::string_view csv, const std::string& name, bool fit = false);

}  // namespace trireme::planner
