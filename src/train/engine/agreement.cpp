// SPDX-License-Identifier: Apache-2.0
#include "train/engine/agreement.hpp"

#include <fmt/format.h>

#include "trireme/base/build_info.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/base/text.hpp"
#include "trireme/mpi/broadcast.hpp"
#include "trireme/mpi/gather.hpp"
#include "trireme/mpi/require_equal.hpp"

namespace trireme::train {
namespace {

std::string build_text() {
  const BuildInfo& build = build_info();
  std::string text = fmt::format("trireme {}\ngit {}{}\n{} {}\n{}\n{}\n", build.version, build.git_hash,
                                 fault::point("start.build") ? "-another" : "", build.compiler, build.build_type,
                                 build.flags, build.arch);
  for (const LibraryVersion& library : build.libraries) text += fmt::format("{} {}\n", library.name, library.version);
  return text;
}

}  // namespace

std::string misplaced(const mesh::Mesh& mesh, const std::vector<int>& dp_ranks) {
  constexpr std::size_t most = 8;
  std::vector<std::string> wrong;
  for (int rank = 0; rank < static_cast<int>(dp_ranks.size()); ++rank) {
    const int expected = mesh.dp_rank(mesh.coordinates(Rank{rank})).value;
    const int found = dp_ranks[static_cast<std::size_t>(rank)];
    if (found != expected && wrong.size() < most)
      wrong.push_back(fmt::format("rank {} works as dp rank {} instead of {}", rank, found, expected));
  }
  return join(wrong, ", ");
}

void agree_on_build_and_places(const mpi::Communicator& world, const mesh::Mesh& mesh, DpRank mine) {
  mpi::require_equal(world, "the build", build_text());
  if (fault::point("start.dp_rank")) mine.value = 0;
  std::vector<int> dp_ranks;
  for (const std::string& text : mpi::gather_texts(world, std::to_string(mine.value)))
    dp_ranks.push_back(std::stoi(text));
  const std::string wrong = mpi::broadcast_text(world, misplaced(mesh, dp_ranks));
  if (!wrong.empty())
    throw EnvironmentError(fmt::format(
        "{} ({}): two ranks would read the same samples. The ranks see different meshes, or the memory of that node is "
        "corrupt: start the job again, without that node if it happens again.",
        wrong, mesh.text()));
}

}  // namespace trireme::train
