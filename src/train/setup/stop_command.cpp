// SPDX-License-Identifier: Apache-2.0
#include "train/setup/stop_command.hpp"

#include <fmt/format.h>
#include <unistd.h>

namespace trireme::train {

std::string stop_command(const BatchJob& job) {
  if (job.id.empty()) return fmt::format("kill -USR1 {}", ::getpid());
  // The id of an array's last task selects the whole array.
  return fmt::format("scancel --signal=USR1 {}", job.array.empty() ? job.id : job.array);
}

}  // namespace trireme::train
