// SPDX-License-Identifier: Apache-2.0
#include "cli/init/gpu_machines.hpp"

#include <fmt/format.h>

#include "trireme/base/error.hpp"
#include "trireme/planner/time/machine.hpp"

namespace trireme::cli {

std::string shipped_machine_of(std::string_view gpu, Bytes memory) {
  const std::optional<planner::GpuMachine> found = planner::machine_of_gpu(gpu, memory);
  if (found && found->same) return found->name;
  throw ConfigError(fmt::format(
      "this machine has a GPU \"{}\" ({}), which no shipped machine file describes; give --machine with the "
      "name of one that comes near (`trireme plan --help` lists them) or a file of your own, which `trireme "
      "doctor --measure` writes",
      gpu, to_text(memory)));
}

}  // namespace trireme::cli
