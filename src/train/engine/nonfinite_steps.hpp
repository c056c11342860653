// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/checkpoint/manifest.hpp"
#include "trireme/executor/executor.hpp"

namespace trireme::train {

/// Keeps the counts of skipped steps; rank 0 warns of one. step: from 0.
void count_nonfinite_step(checkpoint::State& state, const executor::StepResult& result, std::int64_t step, int rank);

/// Throws NumericsError on rank 0 after `most` (at least 1) skipped steps in a row; all ranks count alike, so the
/// others wait for the end of the job.
void abort_after_nonfinite_steps(const checkpoint::State& state, std::int64_t most, std::int64_t step, int rank);

}  // namespace trireme::train
