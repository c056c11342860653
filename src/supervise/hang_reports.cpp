// SPDX-License-Identifier: Apache-2.0
#include "trireme/supervise/hang_reports.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <vector>

#include "trireme/base/io/entries.hpp"
#include "trireme/base/text.hpp"

namespace trireme::supervise {

namespace fs = std::filesystem;

std::string hang_report_path(const std::string& output, int rank) {
  return fmt::format("{}/hang-rank{}.json", output, rank);
}

std::string heartbeat_path(const std::string& output) { return output + "/.heartbeat"; }

void remove_hang_reports(const std::string& output) {
  std::error_code error;
  fs::remove(heartbeat_path(output), error);
  for (const fs::path& path : io::entries_of(output, error)) {
    const std::string name = path.filename();
    if (name.starts_with("hang-rank") && name.ends_with(".json")) fs::remove(path, error);
  }
}

std::string silent_ranks(const std::string& output, const mpi::Communicator& world) {
  constexpr std::size_t most = 8;
  std::vector<std::string> silent;
  std::error_code error;
  for (int rank = 0; rank < world.size(); ++rank)
    if (!fs::exists(hang_report_path(output, rank), error)) silent.push_back(world.name_of(rank));
  if (silent.size() == static_cast<std::size_t>(world.size())) return "";
  if (silent.size() > most) {
    silent[most] = fmt::format("and {} more", silent.size() - most);
    silent.resize(most + 1);
  }
  return join(silent, ", ");
}

}  // namespace trireme::supervise
