// SPDX-License-Identifier: Apache-2.0
#include "cli/start/with_mpi.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

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

}  // namespace

std::string mpi_library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> library{};
  int length = 0;
  mpi::check(MPI_Get_library_version(library.data(), &length), "ask for MPI's version");
  return {library.data(), static_cast<std::size_t>(length)};
}

void require_process_manager() { check_introduction(launched(environment), environment, mpi_library()); }

int with_mpi(const std::function<int(const mpi::Communicator& world)>& body) {
  check_temporary_directory();
  const mpi::Session session(nullptr, nullptr);
  try {
    return body(session.world());
  } catch (const mpi::CollectiveError& error) {
    if (error.prints()) mpi::print_error(error.what());
    return static_cast<int>(error.code());
  } catch (...) {
    mpi::abort_job_for_current_exception();
  }
}

}  // namespace trireme::cli
