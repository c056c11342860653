// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/checkpoint/best.hpp"
#include "trireme/checkpoint/save/background_save.hpp"
#include "trireme/checkpoint/save/save.hpp"
#include "trireme/mpi/communicator.hpp"
#include "trireme/train/engine/job.hpp"
#include "trireme/train/save/host_mirror.hpp"

namespace trireme::train {

/// Keys whose values differ between the effective run file `saved`, of any version, and `now`, a line each, without
/// [run], [checkpoint] and [metrics]. Throws ConfigError for text that is not TOML.
[[nodiscard]] std::vector<std::string> changed_settings(const std::string& saved, const config::RunConfig& now);

/// Whether a run writes checkpoints without a request.
[[nodiscard]] bool saves_checkpoints(const config::RunConfig& config);

/// Inputs of the order of a run's samples, token files by their contents: a resumed run must find the same.
/// old: with the fingerprints of checkpoints without a run id.
[[nodiscard]] checkpoint::Metadata data_metadata(const config::RunConfig& config, bool old = false);

/// Masters and moments of this rank in fp32, as checkpoints hold them; those on a GPU and of another type in `mirror`.
/// With Keeps::last, values are valid until others are read. The job must outlive them.
[[nodiscard]] checkpoint::Shards shards_of(
    Job& job, const std::shared_ptr<HostMirror>& mirror = std::make_shared<HostMirror>(HostMirror::Keeps::last));

/// The checkpoints of one run: loads the initial state and saves.
class Checkpointing {
 public:
  /// Collective over `world`, whose ranks are the job's. threads: of a rank, a choice that bits depend on.
  Checkpointing(Job& job, const mpi::Communicator& world, int threads);

  /// Fills the job's parameters and moments according to `checkpoint.resume`, or with initial parameters, and returns
  /// the state of the run. `auto` skips damaged checkpoints with a warning. A resumed run multiplies with the libraries
  /// of the previous one. Collective. Throws CollectiveError on every rank when checkpoints exist and none can be used,
  /// or one is of another model or of other token files.
  [[nodiscard]] checkpoint::State begin();

  /// Whether a checkpoint is due after step `step` (from 0).
  [[nodiscard]] bool due_after(std::int64_t step) const;

  /// Saves `state` and the job's tensors, unless that step has been saved; replicas are
  /// compared first. With `checkpoint.async` it returns after the copy, and a thread writes it;
  /// it first waits for a save in progress, whose failure is logged as an error while training
  /// continues. last: no save follows, so it is written synchronously and a failure is thrown.
  /// Collective; lanes idle. Throws WriteError, NumericsError. Returns the lines to log, or "".
  [[nodiscard]] std::string save(checkpoint::State state, bool last);

  /// Saves `state`, that of masters and moments during a step, synchronously, unless nothing was trained since the
  /// newest save. Replicas are not compared: the step uses their links. Collective, on any thread, but not concurrently
  /// with other calls. A failure is logged as an error, and the step continues. Returns the same as `save`.
  [[nodiscard]] std::string save_in_step(const checkpoint::State& state);

  /// checkpoint.keep_best: if the loss of `offered`, of an evaluation at `state`, is lower than any before over the
  /// same targets, saves the checkpoint of this step, if necessary, and marks it as soon as it is written. Replaces a
  /// best one over other targets, and logs that. Collective, as `save`.
  [[nodiscard]] std::string offer_best(const checkpoint::State& state, checkpoint::Best offered);

  /// Message of a save that a thread has ended since the last call. Its failure is logged as an error.
  [[nodiscard]] std::string news();
  /// Waits for the save in progress. Collective. Throws WriteError when the newest save of the run failed.
  [[nodiscard]] std::string finish();
  /// Settings of generation in exports of this run; on the first rank, once it has begun.
  [[nodiscard]] const checkpoint::Metadata& generation() const { return generation_; }
  /// Seconds that the longest save of this job took; 0 before the first.
  [[nodiscard]] double save_seconds() const { return save_seconds_; }

 private:
  [[nodiscard]] checkpoint::State fresh();
  [[nodiscard]] checkpoint::State resumed(const std::vector<std::string>& paths);
  [[nodiscard]] checkpoint::State resumed(const std::string& path, const checkpoint::Manifest& manifest);
  void keep_generation(const std::string& path, const checkpoint::Metadata& saved);
  void check_data(const std::string& path, checkpoint::State& state) const;
  [[nodiscard]] std::string mark();
  void put_mark_right();
  [[nodiscard]] std::string await_background(std::string_view what);
  [[nodiscard]] std::string take_background();
  [[nodiscard]] checkpoint::State completed(checkpoint::State state) const;
  [[nodiscard]] std::string write(const checkpoint::State& state, bool last);
  void say_what_changed(const std::string& saved) const;
  void failed(std::int64_t step, const std::exception& error);
  void abort_where_nothing_is_ever_saved() const;
  void find_best(std::int64_t step);
  /// The checkpoint of `step` is there: marks it if it is the best one.
  std::string saved(std::int64_t step);

  Job& job_;
  mpi::Communicator world_;
  int threads_;
  checkpoint::BackgroundSave background_;
  checkpoint::Metadata data_;
  checkpoint::Metadata generation_;  ///< on the first rank; the tokenizer as it was when this job began
  std::int64_t base_step_ = 0;
  std::int64_t saved_step_ = -1;
  std::optional<checkpoint::Best> best_;      ///< currently marked
  std::optional<checkpoint::Best> promised_;  ///< to be marked once it is there
  bool unmarked_ = false;                     ///< the best one could not be marked
  bool forgets_best_ = false;                 ///< a mark of an abandoned branch is there until the first save
  std::string failure_;                       ///< of the newest save; empty: it is saved
  int failed_saves_ = 0;                      ///< since the last one that succeeded
  double save_seconds_ = 0;
};

}  // namespace trireme::train
