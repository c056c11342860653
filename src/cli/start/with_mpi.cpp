// SPDX-License-Identifier: Apache-2.0
#include "cli/start/with_mpi.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>

#include "cli/start/launcher.hpp"
#include "trireme/base/error.hpp"
#include "trireme/mpi/abort.hpp"
#include "trireme/mpi/collective_try.hpp"
#include "trireme/mpi/mpi.hpp"
#include "trireme/mpi/session.hpp"

namespace trireme::cli {
namespace {

/// Open MPI keeps files of a job in TMPDIR. mpirun makes them for its ranks; for a program that is started alone
/// MPI_Init does, and where it may not, ends the process with pages of advice.
void check_temporary_directory() {
  if (launched(environment) || !mpi_library().starts_with("Open MPI")) return;
  const std::string path = environment("TMPDIR");
  if (path.empty() || ::access(path.c_str(), F_OK) != 0 || ::access(path.c_str(), W_OK | X_OK) == 0) return;
  throw EnvironmentError(
      fmt::format("TMPDIR {}: {}; Open MPI requires a directory that you may write to", path, std::strerror(errno)));
}

/// Whether arbitration selects the rank that prints; in the start and the end every rank prints.
std::atomic<bool> arbitrates = false;

/// Ends a job that hangs in its start or its end. The first of the ranks that are not stuck prints, the launcher ends
/// the others.
void end_hung_job(const std::string& message) {
  constexpr int most = 3;
  constexpr std::chrono::milliseconds head_start{3000};
  const std::optional<Launched> by = launched(environment);
  if (by && !arbitrates) std::this_thread::sleep_for(std::min(by->rank, most) * head_start);
  const std::string stopped = mpi::unfinalized_ranks();
  mpi::abort_job(ExitCode::hang,
                 stopped.empty() ? message : fmt::format("{} MPI_Finalize has not returned on {}.", message, stopped));
}

int code_of(const mpi::Communicator& world, supervise::Watchdog& watchdog,
            const std::function<int(const mpi::Communicator& world, supervise::Watchdog& watchdog)>& body) {
  try {
    return body(world, watchdog);
  } catch (const mpi::CollectiveError& error) {
    if (error.prints()) mpi::print_error(error.what());
    return static_cast<int>(error.code());
  } catch (...) {
    mpi::abort_job_for_current_exception();
  }
}

}  // namespace

std::string mpi_library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> library{};
  int length = 0;
  mpi::check(MPI_Get_library_version(library.data(), &length), "ask for MPI's version");
  return {library.data(), static_cast<std::size_t>(length)};
}

void require_process_manager() { check_introduction(launched(environment), environment, mpi_library()); }

int with_mpi(double timeout_seconds,
             const std::function<int(const mpi::Communicator& world, supervise::Watchdog& watchdog)>& body) {
  check_temporary_directory();
  // Watches until the process is gone: never destroyed.
  auto& watchdog = *new supervise::Watchdog({.timeout_seconds = timeout_seconds, .on_hang = end_hung_job}, nullptr,
                                            "MPI_Init and the set-up of communicators", /*detects_stops=*/true);
  const mpi::Session session(nullptr, nullptr);
  arbitrates = true;
  watchdog.rest();
  const int code = code_of(session.world(), watchdog, body);
  arbitrates = false;
  watchdog.mark("MPI_Finalize", supervise::Watchdog::at_end);
  return code;
}

int with_mpi(const std::function<int(const mpi::Communicator& world)>& body) {
  constexpr double timeout_seconds = 600;  // the default of comm.timeout_seconds
  return with_mpi(timeout_seconds, [&](const mpi::Communicator& world, supervise::Watchdog&) {
    const int code = body(world);
    mpi::collective_try(world, "end the program", [] {});  // rank 0 may be at work for hours
    return code;
  });
}

}  // namespace trireme::cli
