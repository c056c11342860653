// SPDX-License-Identifier: Apache-2.0
#include "train/setup/stop_command.hpp"

#include <fmt/format.h>
#include <unistd.h>

namespace trireme::train {

std::string stop_command(const BatchJob& job) {
  return job.id.empty() ? fmt::format("kill -USR1 {}", ::getpid()) : fmt::format("scancel --signal=USR1 {}", job.id);
}

}  // namespace trireme::train
