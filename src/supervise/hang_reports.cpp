// SPDX-License-Identifier: Apache-2.0
#include "trireme/supervise/hang_reports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <set>
#include <system_error>
#include <vector>

#include "trireme/base/io/entries.hpp"
#include "trireme/base/io/handled_files.hpp"
#include "trireme/base/io/remove_tree.hpp"
#include "trireme/base/text.hpp"

namespace trireme::supervise {

namespace fs = std::filesystem;

namespace {

std::string report_name(int rank) { return fmt::format("hang-rank{}.json", rank); }

}  // namespace

std::string hang_report_path(const std::string& output, int rank) { return output + "/" + report_name(rank); }

std::string heartbeat_path(const std::string& output) { return output + "/.heartbeat"; }

void remove_hang_reports(const std::string& output) {
  std::error_code error;
  io::remove_file(heartbeat_path(output), error);
  for (const fs::path& path : io::entries_of(output, error)) {
    const std::string name = path.filename();
    if (name.starts_with("hang-rank") && name.ends_with(".json")) io::remove_tree(path, error);
  }
}

std::vector<int> hang_reporters(const mpi::Communicator& world, int most) {
  std::vector<int> ranks = world.size() > most ? world.rank_of_each_node() : std::vector<int>();
  if (ranks.empty()) {
    ranks.resize(static_cast<std::size_t>(world.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
  }
  return ranks;
}

std::string silent_ranks(const std::string& output, const mpi::Communicator& world, int most) {
  constexpr std::size_t shown = 8;
  std::error_code error;
  std::set<std::string> there;
  for (const fs::path& path : io::entries_of(output, error)) there.insert(path.filename());
  const std::vector<int> reporters = hang_reporters(world, most);
  std::vector<int> missing;
  std::ranges::copy_if(reporters, std::back_inserter(missing),
                       [&](int rank) { return !there.contains(report_name(rank)); });
  if (missing.size() == reporters.size()) return "";
  std::vector<std::string> silent;
  for (const int rank : missing) {
    if (silent.size() == shown) {
      silent.push_back(fmt::format("and {} more", missing.size() - shown));
      break;
    }
    silent.push_back(world.name_of(rank));
  }
  return join(silent, ", ");
}

}  // namespace trireme::supervise
