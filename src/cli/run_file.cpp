// SPDX-License-Identifier: Apache-2.0
#include "cli/run_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <limits>
#include <optional>

#include "trireme/base/error.hpp"
#include "trireme/base/hash.hpp"
#include "trireme/base/text.hpp"
#include "trireme/config/load.hpp"
#include "trireme/config/options.hpp"
#include "trireme/mpi/together.hpp"

namespace trireme::cli {
namespace {

using mpi::check;
using mpi::Communicator;

constexpr std::uint64_t nothing = std::numeric_limits<std::uint64_t>::max();

/// Whether all texts that were given are the same. Collective; O(log ranks).
bool all_equal(const Communicator& world, const std::optional<std::string>& text) {
  // The bits that all hashes have, and that all complements have: together every bit only where all are equal. (A
  // minimum would do, but MPICH 4.0 compares unsigned words as signed ones.)
  const std::uint64_t hash = text ? fnv1a(*text) : 0;
  const std::array<std::uint64_t, 2> mine{text ? hash : nothing, text ? ~hash : nothing};
  std::array<std::uint64_t, 2> common_bits{};
  check(MPI_Allreduce(mine.data(), common_bits.data(), 2, MPI_UINT64_T, MPI_BAND, world.handle()),
        "compare the run files");
  return common_bits[0] == ~common_bits[1];
}

/// The lowest rank for which `holds`; the number of ranks when there is none. Collective.
int first_rank_where(const Communicator& world, bool holds) {
  const int mine = holds ? world.rank() : world.size();
  int first = 0;
  check(MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, world.handle()), "find the first rank");
  return first;
}

/// The text of rank `from`, on rank 0.
std::string text_at_rank_0(const Communicator& world, int from, std::string text) {
  constexpr int tag = 0;
  if (from == 0) return text;
  if (world.rank() == from)
    check(MPI_Send(text.data(), static_cast<int>(text.size()), MPI_CHAR, 0, tag, world.handle()), "show a run file");
  if (world.rank() != 0) return {};
  MPI_Status status;
  int size = 0;
  check(MPI_Probe(from, tag, world.handle(), &status), "await a run file");
  check(MPI_Get_count(&status, MPI_CHAR, &size), "measure a run file");
  text.resize(static_cast<std::size_t>(size));
  check(MPI_Recv(text.data(), size, MPI_CHAR, from, tag, world.handle(), MPI_STATUS_IGNORE), "receive a run file");
  return text;
}

/// The run file and --set values of one rank, by key.
struct View {
  std::string command;
  std::optional<config::RunConfig> config;  ///< absent on ranks that do not read
  std::exception_ptr mistake;
  [[nodiscard]] std::optional<std::string> text() const {
    return config ? std::optional(config::print_run_file(*config)) : std::nullopt;
  }
};

View read(const RunFileArguments& arguments, std::string command, bool reads) {
  View view{.command = std::move(command), .config = {}, .mistake = {}};
  if (!reads) return view;
  try {
    view.config = config::load_run_file(arguments.path, arguments.overrides);
  } catch (...) {
    view.mistake = std::current_exception();
  }
  return view;
}

/// Throws on rank 0: the values of rank 0 and of the first rank that differs from it.
void refuse(const Communicator& world, const View& view) {
  std::uint64_t first_hash = view.config ? fnv1a(*view.text()) : nothing;
  const std::uint64_t mine = first_hash;
  check(MPI_Bcast(&first_hash, 1, MPI_UINT64_T, 0, world.handle()), "compare the run files");
  const int other = first_rank_where(world, view.config && mine != first_hash);
  const std::string command = text_at_rank_0(world, other, view.command);
  const std::string text = text_at_rank_0(world, other, view.text().value_or(""));
  if (world.rank() != 0) return;
  auto keys = differing_keys(*view.config, 0, config::parse_run_file(text, "the other run file"), other);
  constexpr std::size_t most = 8;
  if (keys.size() > most) {
    keys.back() = fmt::format("and {} more", keys.size() - most);
    keys.erase(keys.begin() + most, keys.end() - 1);
  }
  throw ConfigError(
      fmt::format("The ranks received different run files or --set values: {}. Rank 0 was started as \"{}\", rank {} "
                  "as \"{}\". Give all ranks of a job the same run file and the same --set.",
                  join(keys, "; "), view.command, other, command));
}

}  // namespace

std::vector<std::string> differing_keys(const config::RunConfig& first, int first_rank, const config::RunConfig& other,
                                        int other_rank) {
  std::vector<std::string> keys;
  for (const config::Option& option : config::options()) {
    const config::Printed a = option.print(first);
    const config::Printed b = option.print(other);
    if (a != b)
      keys.push_back(fmt::format("{} = {} on rank {}, {} on rank {}", option.name(), a.value_or("not set"), first_rank,
                                 b.value_or("not set"), other_rank));
  }
  return keys;
}

config::RunConfig agree_on_run_file(const Communicator& world, const RunFileArguments& arguments) {
  std::string command = "trireme train " + arguments.path;
  for (const std::string& set : arguments.overrides) command += " --set " + set;
  const bool same_command = all_equal(world, command);
  const bool first_of_node = world.node().rank() == 0;
  const View view = read(arguments, std::move(command), !same_command || first_of_node);
  mpi::together(world, [&] {
    if (view.mistake) std::rethrow_exception(view.mistake);
  });
  if (!all_equal(world, view.text())) mpi::together(world, [&] { refuse(world, view); });
  return view.config.value_or(config::RunConfig{});
}

}  // namespace trireme::cli
