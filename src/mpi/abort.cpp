// SPDX-License-Identifier: Apache-2.0
#include "trireme/mpi/abort.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <utility>

#include "mpi/abort_state.hpp"
#include "trireme/base/exit_report.hpp"
#include "trireme/base/standard_error.hpp"
#include "trireme/base/text.hpp"
#include "trireme/mpi/mpi.hpp"
#include "trireme/mpi/topology.hpp"
#include "trireme/mpi/wait.hpp"

namespace trireme::mpi {
namespace {

constexpr std::chrono::seconds patience{3};           // for MPI_Abort, which mpirun and srun answer within one
constexpr std::chrono::milliseconds head_start{300};  // of the first node, when several fail together
constexpr std::chrono::milliseconds reading{500};     // of the last line by the launcher, at most
constexpr std::chrono::seconds asking{2};             // limit for callbacks that may read a file system

std::atomic<const AbortArbitration*> abort_arbitration = nullptr;
std::atomic<bool> mpi_ending = false;

bool mpi_is_up() {
  if (mpi_ending) return false;
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized != 0 && finalized == 0;
}

// MPICH's launcher drops unread output at an abort. FIONREAD returns the unread bytes of a pipe to its writer.
void wait_until_read() {
  struct stat status {};
  if (::fstat(STDERR_FILENO, &status) != 0 || !S_ISFIFO(status.st_mode)) return;
  const auto end = std::chrono::steady_clock::now() + reading;
  int unread = 0;
  Backoff backoff;
  while (::ioctl(STDERR_FILENO, FIONREAD, &unread) == 0 && unread > 0 && std::chrono::steady_clock::now() < end) {
    if (!backoff.brief()) backoff.sleep();
  }
}

// Returns on one rank only, which prints the message: those of the other failing ranks would be the same.
void wait_unless_first() {
  const AbortArbitration* word = abort_arbitration;
  if (word == nullptr) return;
  if (!word->claim()) await_end_of_job();
  if (!word->on_first_node()) std::this_thread::sleep_for(head_start);
}

/// Text of `more`, or "" if there is none in time: a file system may hang.
std::string answer_of(const std::function<std::string()>& more) {
  if (!more) return {};
  try {
    std::packaged_task<std::string()> task(more);  // also stores an exception of `more`
    std::future<std::string> answer = task.get_future();
    std::thread(std::move(task)).detach();
    return answer.wait_for(asking) == std::future_status::ready ? answer.get() : std::string();
  } catch (...) {
    return {};  // no thread to be had, or `more` threw
  }
}

}  // namespace

void print_error(std::string_view message) {
  write_last_message(printable_lines(fmt::format("trireme: error: {}\n", message)));  // it may quote a file
  wait_until_read();
}

void set_mpi_ending() { mpi_ending = true; }

void set_abort_arbitration(const AbortArbitration* word) { abort_arbitration = word; }

std::string ended_ranks() {
  const AbortArbitration* const word = abort_arbitration;
  return word != nullptr ? word->ended_ranks() : "";
}

std::string unfinalized_ranks() {
  const AbortArbitration* const word = abort_arbitration;
  return word != nullptr ? word->unfinalized_ranks() : "";
}

void await_end_of_job() {
  for (;;) std::this_thread::sleep_for(patience);
}

void abort_job(ExitCode code, std::string_view message, const std::function<std::string()>& more) {
  static std::atomic_flag begun = ATOMIC_FLAG_INIT;
  if (begun.test_and_set()) await_end_of_job();

  const int status = static_cast<int>(code);
  // MPI_Abort may itself wait for a lock or a dead daemon.
  try {
    std::thread([status] {
      std::this_thread::sleep_for(patience);
      ::_exit(status);
    }).detach();
  } catch (...) {
    ::alarm(static_cast<unsigned>(patience.count()));  // no thread to be had: the signal ends the process
  }

  if (mpi_is_up()) {
    // Text after an empty line, such as tables, is written above the message.
    const std::size_t end = std::min(message.find("\n\n"), message.size());
    std::string tables(message.substr(std::min(end + 2, message.size())));
    if (!tables.empty() && tables.back() != '\n') tables += '\n';
    wait_unless_first();
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    write_last_message(printable_lines(fmt::format("{}[rank {} {}] error: {}{}\n", tables, rank, hostname(),
                                                   message.substr(0, end), answer_of(more))));
    wait_until_read();
    MPI_Abort(MPI_COMM_WORLD, status);
  } else {
    print_error(message);
  }
  ::_exit(status);
}

void abort_job_for_current_exception() {
  const ExitReport report = exit_report(std::current_exception());
  abort_job(report.code, report.text);
}

}  // namespace trireme::mpi
