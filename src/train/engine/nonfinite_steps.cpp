// SPDX-License-Identifier: Apache-2.0
#include "train/engine/nonfinite_steps.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/base/log.hpp"
#include "trireme/mpi/abort.hpp"

namespace trireme::train {

void count_nonfinite_step(checkpoint::State& state, const executor::StepResult& result, std::int64_t step, int rank) {
  if (!result.skipped) {
    state.skipped_in_a_row = 0;
    return;
  }
  ++state.skipped;
  ++state.skipped_in_a_row;
  if (rank == 0)
    log::warning(fmt::format("step {}: loss {} or gradient norm {} is not finite; the step is skipped", step + 1,
                             result.loss, result.grad_norm));
}

void abort_after_nonfinite_steps(const checkpoint::State& state, std::int64_t most, std::int64_t step, int rank) {
  if (state.skipped_in_a_row < std::max<std::int64_t>(1, most)) return;
  if (rank != 0) mpi::await_end_of_job();
  throw NumericsError(
      fmt::format("{} step{} in a row had a loss or gradient norm that is not finite (train.max_skipped_steps); the "
                  "last is step {}. Lower optimizer.lr, increase lr.warmup_steps, or skip the data with "
                  "data.skip_to.",
                  state.skipped_in_a_row, state.skipped_in_a_row == 1 ? "" : "s", step + 1));
}

}  // namespace trireme::train
