// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/planner/validate/published.hpp"

namespace trireme::planner {

/// For each fleet with a hundred rows of data and tensor parallelism (one pipeline stage, TP within a node, up to 256
/// GPUs): fits its numbers on one half of the rows and prints the errors of the other; the same with each model left
/// out; and how often the predicted best three of a model and GPU count contain one within 5% of the measured best.
[[nodiscard]] std::string fit_report(const std::vector<PublishedRow>& rows);

}  // namespace trireme::planner
