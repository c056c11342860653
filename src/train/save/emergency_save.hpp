// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "trireme/checkpoint/manifest.hpp"
#include "trireme/mpi/communicator.hpp"

namespace trireme::train {

/// Saves the last finished step while the next one runs, for a signal that is followed by a kill before a long step
/// ends (Ctrl-C under mpirun). Masters and moments do not change until a step's first update, which waits while they
/// are written. On a separate thread and communicator: all ranks save the same step, or none does, in any state of the
/// training.
class EmergencySave {
 public:
  /// Writes a checkpoint of a state. Called on the thread of this object, on all ranks or none.
  using Write = std::function<void(const checkpoint::State& state)>;

  /// Collective over `world`. patience: how long a step may still take after the signal before its predecessor is
  /// saved. Where a rank gets no thread, no rank saves.
  EmergencySave(const mpi::Communicator& world, Write write,
                std::chrono::milliseconds patience = std::chrono::milliseconds(200));
  EmergencySave(const EmergencySave&) = delete;
  EmergencySave& operator=(const EmergencySave&) = delete;
  /// After `close`, or while an exception ends the job.
  ~EmergencySave() = default;

  /// Masters and moments are those of `state` until `withdraw`, and no other save begins until then.
  void offer(const checkpoint::State& state);
  /// Before they change; waits for a save.
  void withdraw();

  /// This rank may be killed soon. Has no effect until every rank has called it. From any thread.
  void request();
  /// Ends saving. Collective over the world; nothing is offered.
  void close();

 private:
  void serve(const std::stop_token& ending);
  [[nodiscard]] bool every_rank_takes_part(const std::stop_token& ending) const;
  [[nodiscard]] bool is_over();

  mpi::Communicator world_;   ///< of the thread
  mpi::Communicator ending_;  ///< of `close`
  Write write_;
  std::chrono::milliseconds patience_;

  std::mutex offer_mutex_;  ///< held while the offered state is written
  std::optional<checkpoint::State> offered_;

  std::mutex mutex_;
  std::condition_variable_any wake_;
  bool closing_ = false;
  bool takes_part_ = false;  ///< every rank does, or none

  std::jthread thread_;  ///< last: it uses the others
};

}  // namespace trireme::train
