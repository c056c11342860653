// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "train/record/event_file.hpp"
#include "train/record/metrics.hpp"

namespace trireme::train {

/// The numbers of a row as points of TensorBoard's curves: docs/outputs.md names the tags. What is not known (mfu)
/// and categories of memory that the step did not use are left out; what is not finite stays.
[[nodiscard]] std::vector<Scalar> curves(const StepRow& row);
[[nodiscard]] std::vector<Scalar> curves(const EvalRow& row);

}  // namespace trireme::train
