// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "train/setup/batch_job.hpp"

namespace trireme::train {

/// The command that makes this run save and stop after its step: a signal to the Slurm job, or to this process. One
/// rank that gets it suffices.
[[nodiscard]] std::string stop_command(const BatchJob& job);

}  // namespace trireme::train
