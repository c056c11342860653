// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "trireme/checkpoint/save/save.hpp"
#include "trireme/checkpoint/save/staging.hpp"
#include "trireme/mpi/communicator.hpp"

namespace trireme::checkpoint {

/// Result of a save that ran concurrently with the training.
struct Ended {
  std::int64_t step = 0;
  Saved saved;
  double seconds = 0;          ///< from the copy to the commit
  double stall_seconds = 0;    ///< duration of the copy, during which training waits
  std::exception_ptr failure;  ///< the same kind on every rank; null: it is saved
};

/// Saves that are written by a separate thread while training continues, one at a time. The ranks exchange messages
/// over separate communicators, which requires MPI_THREAD_MULTIPLE.
class BackgroundSave {
 public:
  /// Collective over `world`, whose ranks are the mesh's.
  explicit BackgroundSave(const mpi::Communicator& world);
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;
  /// Waits for the save in progress.
  ~BackgroundSave();

  /// Copies `shards` and begins to write the copy. Requires that no save is in progress. Returns false, with a warning,
  /// when a rank's node has no memory for the copy, or a rank no thread: nothing was started then. Collective; model
  /// and layout of `shards` outlive the save.
  [[nodiscard]] bool start(const Shards& shards, const State& state, const SaveOptions& options);

  /// Whether one has been started whose end was not taken yet.
  [[nodiscard]] bool started() const { return running_ != nullptr; }
  /// Whether `take` would return at once.
  [[nodiscard]] bool ended() const;
  /// The same after waiting for at most `seconds`.
  [[nodiscard]] bool ends_within(double seconds) const;
  /// Step of the save in progress.
  [[nodiscard]] std::int64_t step() const;
  /// Waits for the save in progress and returns its result.
  [[nodiscard]] Ended take();

 private:
  struct Running {
    Ended end;
    std::atomic<bool> done = false;
    std::promise<void> written;
    std::future<void> whole = written.get_future();
    std::jthread thread;
  };

  /// Runs `prepare` on every rank. False if any lacks memory or threads for it: then background saves are turned off
  /// for the rest of the run, with a warning. Collective.
  [[nodiscard]] bool all_can(std::string_view what, const std::function<void()>& prepare);
  void write(const Shards& copy, const State& state, const SaveOptions& options,
             std::chrono::steady_clock::time_point begin);

  mpi::Communicator world_;
  int ranks_on_node_;
  std::optional<Staging> staging_;
  std::unique_ptr<Running> running_;
  bool no_memory_ = false;
};

}  // namespace trireme::checkpoint
