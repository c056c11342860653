// SPDX-License-Identifier: Apache-2.0
// Saves of checkpoints: at once, concurrently with the training, within a step.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "train/engine/replicas.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/base/log.hpp"
#include "trireme/base/text.hpp"
#include "trireme/config/load.hpp"
#include "trireme/mpi/abort.hpp"
#include "trireme/train/save/checkpointing.hpp"
#include "trireme/train/setup/tuned_settings.hpp"

namespace trireme::train {

/// Logs that a save failed and that the run continues; it is checked again when the run ends.
void Checkpointing::failed(std::int64_t step, const std::exception& error) {
  failure_ = error.what();
  ++failed_saves_;
  promised_.reset();
  if (world_.rank() == 0) log::error(fmt::format("saving step {} failed, training continues: {}", step, failure_));
}

/// Ends a run with regular saves of which none ever succeeded. All ranks have seen the same saves. A best
/// checkpoint that cannot be saved is offered again by the next evaluation.
void Checkpointing::abort_where_nothing_is_ever_saved() const {
  constexpr int most = 3;
  if (job_.config().checkpoint.every == 0 || saved_step_ >= 0 || failed_saves_ < most) return;
  if (world_.rank() != 0) mpi::await_end_of_job();
  throw WriteError(fmt::format(
      "{} saves in a row have failed, and none of this run has succeeded: {}. Set checkpoint.directory to one with "
      "space that all nodes may write to, and start again.",
      failed_saves_, failure_));
}

/// Waits for the save that is written concurrently with the training.
std::string Checkpointing::take_background() {
  const checkpoint::Ended end = background_.take();
  save_seconds_ = std::max(save_seconds_, end.seconds);
  try {
    if (end.failure) std::rethrow_exception(end.failure);
  } catch (const WriteError& error) {
    failed(end.step, error);
    return "";
  }
  failure_.clear();
  failed_saves_ = 0;
  return fmt::format("saved {} ({}, {:.2f} s in the background, training stalled {:.2f} s)\n", end.saved.path,
                     to_text(end.saved.bytes), end.seconds, end.stall_seconds) +
         this->saved(end.step);
}

std::string Checkpointing::news() { return background_.started() && background_.ended() ? take_background() : ""; }

std::string Checkpointing::finish() {
  const std::string said = background_.started() ? take_background() : "";
  if (!failure_.empty()) throw WriteError(failure_);
  return said;
}

/// Waits for a save in the background before `what`.
std::string Checkpointing::await_background(std::string_view what) {
  if (!background_.started()) return "";
  constexpr double worth_a_word = 1;  // second
  if (world_.rank() == 0 && !background_.ends_within(worth_a_word))
    log::warning(
        fmt::format("the save of step {} is still in progress: training waits for it before {}; save "
                    "less often (checkpoint.every), or to a faster disk",
                    background_.step(), what));
  return take_background();
}

std::string Checkpointing::save(checkpoint::State state, bool last) {
  std::string said = await_background(last ? "it ends" : "the next one");
  abort_where_nothing_is_ever_saved();
  if (state.step == saved_step_) return said;
  if (job_.mesh().replicate > 1) check_replicas(job_);
  return said + write(completed(std::move(state)), last);
}

std::string Checkpointing::save_in_step(const checkpoint::State& state) {
  std::string said = background_.started() ? take_background() : "";
  if (state.step <= base_step_) return said;
  fault::set_step_of_thread(static_cast<long>(state.step - 1));
  try {
    return said + write(completed(state), true);
  } catch (const WriteError& error) {
    if (world_.rank() == 0)
      log::error(fmt::format("saving step {} failed, the current step continues: {}", state.step, error.what()));
    return said;
  }
}

/// Adds state of the training other than its step and its place in the data.
checkpoint::State Checkpointing::completed(checkpoint::State state) const {
  const config::RunConfig& config = job_.config();
  state.updates = job_.updates();
  state.seed = config.run.seed;
  state.data = data_;
  state.tuned_settings = current_tuned_settings(threads_);
  state.generation = generation_;
  state.run_file = config::print_run_file(config);
  return state;
}

std::string Checkpointing::write(const checkpoint::State& state, bool last) {
  const auto begin = std::chrono::steady_clock::now();
  const config::Checkpoint& config = job_.config().checkpoint;
  const checkpoint::SaveOptions options{.directory = config.directory,
                                        .keep = config.keep,
                                        .keep_every = config.keep_every,
                                        .best_step = best_ ? best_->step : -1,
                                        .ranks_per_file = config.ranks_per_file,
                                        .base_step = base_step_};
  put_mark_right();
  const checkpoint::Shards shards = shards_of(job_);
  if (config.async && !last && background_.start(shards, state, options)) return "";
  checkpoint::Saved saved;
  try {
    saved = checkpoint::save(world_, shards, state, options);
  } catch (const WriteError& error) {
    if (!config.async || last) throw;
    failed(state.step, error);
    abort_where_nothing_is_ever_saved();
    return "";
  }
  failure_.clear();
  failed_saves_ = 0;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  save_seconds_ = std::max(save_seconds_, seconds);
  return fmt::format("saved {} ({}, {:.2f} s)\n", saved.path, to_text(saved.bytes), seconds) + this->saved(state.step);
}

}  // namespace trireme::train
