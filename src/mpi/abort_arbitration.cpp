// SPDX-License-Identifier: Apache-2.0
#include "trireme/mpi/abort_arbitration.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>

#include "trireme/mpi/communicator.hpp"

namespace trireme::mpi {
namespace {

static_assert(std::atomic<int>::is_always_lock_free, "shared between processes");

/// The descriptor of a new segment with room for the word; -1 when it cannot be had.
int create(const char* name) {
  const int descriptor = ::shm_open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
  if (descriptor < 0 || ::ftruncate(descriptor, sizeof(std::atomic<int>)) == 0) return descriptor;
  ::close(descriptor);
  ::shm_unlink(name);
  return -1;
}

/// Maps the segment and closes its descriptor; null when there is none.
std::atomic<int>* map(int descriptor) {
  if (descriptor < 0) return nullptr;
  void* memory = ::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  ::close(descriptor);
  return memory == MAP_FAILED ? nullptr : static_cast<std::atomic<int>*>(memory);  // zero: not claimed
}

/// Whether a process has ended, zombies included.
bool has_ended(int pid) {
  if (::kill(pid, 0) != 0) return errno == ESRCH;
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  if (!std::getline(file, text)) return false;
  const std::size_t name_ends = text.rfind(')');  // the state stands two characters behind it
  const char state = name_ends != std::string::npos && name_ends + 2 < text.size() ? text[name_ends + 2] : '?';
  return state == 'Z' || state == 'X';
}

}  // namespace

AbortArbitration::AbortArbitration(const Communicator& world) {
  const Communicator node = world.node();
  std::array<char, 64> name{};
  if (node.rank() == 0) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    fmt::format_to_n(name.data(), name.size() - 1, "/trireme-abort-{}-{}", ::getpid(), now);
    claimed_ = map(create(name.data()));
    if (claimed_ == nullptr) name.front() = '\0';
    on_first_node_ = world.rank() == 0;
  }
  check(MPI_Bcast(name.data(), static_cast<int>(name.size()), MPI_CHAR, 0, node.handle()), "share a name");
  if (node.rank() != 0 && name.front() != '\0') claimed_ = map(::shm_open(name.data(), O_RDWR, 0600));
  const int pid = ::getpid();
  std::vector<int> pids(static_cast<std::size_t>(node.size()));
  check(MPI_Allgather(&pid, 1, MPI_INT, pids.data(), 1, MPI_INT, node.handle()), "share process ids");
  const bool sees_all = std::ranges::none_of(pids, has_ended);
  std::array<int, 2> both{on_first_node_ ? 1 : 0, sees_all ? 1 : 0};
  // Also waits until everybody has opened it: then the name can go, and nothing is left behind however the job ends.
  check(MPI_Allreduce(MPI_IN_PLACE, both.data(), 2, MPI_INT, MPI_MIN, node.handle()), "agree on the first node");
  on_first_node_ = both[0] != 0;
  for (int rank = 0; rank < node.size() && both[1] != 0; ++rank)
    if (rank != node.rank()) node_.push_back({pids[static_cast<std::size_t>(rank)], node.name_of(rank)});
  if (node.rank() == 0 && claimed_ != nullptr) ::shm_unlink(name.data());
}

AbortArbitration::~AbortArbitration() {
  if (claimed_ != nullptr) ::munmap(claimed_, sizeof(std::atomic<int>));
}

std::string AbortArbitration::ended_ranks() const {
  std::string ranks;
  for (const Process& process : node_)
    if (has_ended(process.pid)) ranks += (ranks.empty() ? "" : ", ") + process.rank;
  return ranks;
}

bool AbortArbitration::claim() const noexcept { return claimed_ == nullptr || claimed_->exchange(1) == 0; }

}  // namespace trireme::mpi
