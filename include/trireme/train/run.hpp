// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trireme/base/error.hpp"
#include "trireme/config/run_config.hpp"
#include "trireme/mpi/communicator.hpp"

namespace trireme::train {

/// Options of a start in addition to the run file.
struct RunOptions {
  std::string run_file{};       ///< that the settings were read from; it is never written
  bool is_trial = false;        ///< its output is removed, which the banner states
  std::int64_t log_every = 10;  ///< steps between lines on standard output; a terminal has one that is rewritten
  std::function<void()> on_supervised{};  ///< called when the watchdog of the run has started; may be empty
};

/// Trains the run of a run file, from its first step to its last: banner, steps, metrics, evaluation, checkpoints,
/// export. Resumes from a checkpoint by `checkpoint.resume`. Returns ExitCode::requeue when a signal stopped it after a
/// save. Collective over `world`. Requires initialized libraries (`device::install_allocator`, Kokkos, threads). Throws
/// Error.
ExitCode run_training(const config::RunConfig& config, const mpi::Communicator& world, const RunOptions& options = {});

}  // namespace trireme::train
