// SPDX-License-Identifier: Apache-2.0
#include "train/engine/skipped_steps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/base/log.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/mpi/abort.hpp"

namespace trireme::train {
namespace {

/// Names the newest checkpoint before the streak: later ones hold the weights that the streak began with.
std::string checkpoint_before(const config::Checkpoint& options, std::int64_t step) {
  std::string path = checkpoint::newest_without_skipped_steps(options.directory, step);
  const bool named = options.resume != "auto" && options.resume != "none";
  if (path.empty() && named) path = options.resume;
  if (path.empty()) return "There is no checkpoint of before.";
  return fmt::format(
      "The last checkpoint before them is {}: resume from it, or from an earlier one, by checkpoint.resume.", path);
}

}  // namespace

void SkippedSteps::count(checkpoint::State& state, const executor::StepResult& result, std::int64_t step) {
  if (!result.skipped) {
    state.skipped_in_a_row = 0;
    return;
  }
  ++state.skipped;
  ++state.skipped_in_a_row;
  if (rank_ != 0) return;
  if (result.spike) {
    log::warning(fmt::format(
        "step {}: loss {:.6g} or gradient norm {:.6g} lies more than {} standard deviations above the mean of the "
        "{} steps before; the step is skipped (train.skip_spikes)",
        step + 1, result.loss, result.grad_norm, optimizer::SpikeWindow::most_distance, state.spikes.losses.size()));
  } else if (!result.without_targets) {
    log::warning(fmt::format("step {}: loss {} or gradient norm {} is not finite; the step is skipped", step + 1,
                             result.loss, result.grad_norm));
  } else if (!std::exchange(warned_of_no_targets_, true)) {
    log::warning(
        fmt::format("step {}: no target counts (masks of data.train, data.ignore_targets), so that there is no "
                    "loss; the step is skipped, and so is every later one like it, without another warning",
                    step + 1));
  }
}

void SkippedSteps::abort_after_too_many(const checkpoint::State& state, const executor::StepResult& result,
                                        std::int64_t step, const config::Checkpoint& checkpoints) const {
  if (state.skipped_in_a_row < std::max<std::int64_t>(1, most_)) return;
  if (rank_ != 0) mpi::await_end_of_job();
  const std::string steps =
      fmt::format("{} step{} in a row", state.skipped_in_a_row, state.skipped_in_a_row == 1 ? "" : "s");
  if (result.without_targets)
    throw NumericsError(fmt::format(
        "{} had no update (train.max_skipped_steps); in the last, step {}, no target counts. Check the masks of "
        "data.train (which roles or responses `trireme tokenize` counted) and data.ignore_targets, or raise "
        "train.max_skipped_steps.",
        steps, step + 1));
  throw NumericsError(
      fmt::format("{} had a loss or gradient norm that is not finite{} (train.max_skipped_steps); the last is step {}. "
                  "{} Lower optimizer.lr, increase lr.warmup_steps, or skip the data with data.skip_to.",
                  steps, result.spike ? " or a spike (train.skip_spikes)" : "", step + 1,
                  checkpoint_before(checkpoints, state.step - state.skipped_in_a_row)));
}

}  // namespace trireme::train
