// SPDX-License-Identifier: Apache-2.0
#include "cli/run_file.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <string>

#include "trireme/config/load.hpp"
#include "trireme/mpi/require_equal.hpp"

namespace trireme::cli {
namespace {

/// One argument a line, so that the first difference is shown.
std::string command_line(const TrainArguments& arguments) {
  const std::filesystem::path path(arguments.run_file.path);
  std::string text = "trireme train " + path.lexically_normal().string();
  for (const std::string& set : arguments.run_file.overrides) text += "\n--set " + set;
  return arguments.try_steps > 0 ? text + fmt::format("\n--try {}", arguments.try_steps) : text;
}

}  // namespace

config::RunConfig read_run_file(const mpi::Communicator& world, const TrainArguments& arguments,
                                const mpi::Progress& progress) {
  mpi::require_equal(world, "the command line", command_line(arguments));
  const RunFileArguments& file = arguments.run_file;
  const auto read = [&] { return config::print_run_file(config::load_run_file(file.path, file.overrides)); };
  return config::parse_run_file(mpi::on_first_rank(world, "read the run file", read, progress), file.path);
}

}  // namespace trireme::cli
