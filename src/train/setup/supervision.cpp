// SPDX-License-Identifier: Apache-2.0
#include "train/setup/supervision.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "trireme/mpi/abort.hpp"
#include "trireme/mpi/mpi.hpp"
#include "trireme/supervise/hang_reports.hpp"

namespace trireme::train {
namespace {

/// A collective has its own deadline and its peers, so it reports first.
constexpr double watchdog_share = 1.25;

/// One rank looks.
std::int64_t heartbeat_before(const std::string& output, const mpi::Communicator& world) {
  std::int64_t time = world.rank() == 0 ? supervise::heartbeat_time(supervise::heartbeat_path(output)) : 0;
  mpi::check(MPI_Bcast(&time, 1, MPI_INT64_T, 0, world.handle()), "share the time of the heartbeat");
  return time;
}

}  // namespace

Supervision::Supervision(const config::RunConfig& config, const mpi::Communicator& world)
    : config_(config),
      heartbeat_(supervise::heartbeat_path(config.run.output), config.comm.timeout_seconds,
                 heartbeat_before(config.run.output, world)),
      world_(world.duplicate()),
      watchdog_({.timeout_seconds = watchdog_share * config.comm.timeout_seconds,
                 .dump_path = dump_path(),
                 .last_progress = [this] { return heartbeat_.last(); }},
                nullptr, "setting up the job") {
  world_.set_deadline({.timeout_seconds = config.comm.timeout_seconds,
                       .dump_path = dump_path(),
                       .silent_ranks = [this] { return supervise::silent_ranks(config_.run.output, world_); },
                       .last_progress = [this] { return std::max(heartbeat_.last(), watchdog_.marked()); }});
}

std::string Supervision::dump_path() const {
  const std::vector<int> reporters = supervise::hang_reporters(world_);
  const bool writes = std::ranges::find(reporters, world_.rank()) != reporters.end();
  return writes ? supervise::hang_report_path(config_.run.output, world_.rank()) : "";
}

void Supervision::apply_to(JobOptions& options) {
  options.hang_dump_path = dump_path();
  options.silent_ranks = [this] { return supervise::silent_ranks(config_.run.output, world_); };
  options.last_progress = [this] { return heartbeat_.last(); };
}

supervise::FileWork Supervision::file_work(const std::string& what, std::int64_t step) {
  watchdog_.mark(what, step);
  mpi::doing(fmt::format("{}, step {}", what, step + 1));
  return supervise::FileWork(heartbeat_, [this, what, step] { watchdog_.mark(what, step); });
}

}  // namespace trireme::train
