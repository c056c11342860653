// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "train/record/event_file.hpp"
#include "train/record/metrics.hpp"

namespace trireme::train {

/// The numbers of a row as points of TensorBoard's curves: docs/outputs.md lists the tags. Omits unknown numbers (mfu)
/// and categories of memory that the step did not use; keeps non-finite ones.
[[nodiscard]] std::vector<Scalar> curves(const StepRow& row);
[[nodiscard]] std::vector<Scalar> curves(const EvalRow& row);

}  // namespace trireme::train
