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
#include <functional>

#include "trireme/mpi/communicator.hpp"
#include "trireme/mpi/topology.hpp"

namespace trireme::mpi {
namespace {

static_assert(std::atomic<int>::is_always_lock_free, "shared between processes");

/// The descriptor of a new segment with room for the words; -1 when it cannot be had.
int create(const char* name, std::size_t words) {
  const int descriptor = ::shm_open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
  if (descriptor < 0 || ::ftruncate(descriptor, static_cast<off_t>(words * sizeof(std::atomic<int>))) == 0)
    return descriptor;
  ::close(descriptor);
  ::shm_unlink(name);
  return -1;
}

/// Maps the segment and closes its descriptor; empty when there is none.
std::span<std::atomic<int>> map(int descriptor, std::size_t words) {
  if (descriptor < 0) return {};
  void* memory = ::mmap(nullptr, words * sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  ::close(descriptor);
  if (memory == MAP_FAILED) return {};
  return {static_cast<std::atomic<int>*>(memory), words};  // all zero
}

/// Whether a process has ended, zombies included.
bool has_ended(int pid) {
  if (::kill(pid, 0) != 0) return errno == ESRCH;
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  if (!std::getline(file, text)) return false;
  const std::size_t name_ends = text.rfind(')');  // the state is two characters after it
  const char state = name_ends != std::string::npos && name_ends + 2 < text.size() ? text[name_ends + 2] : '?';
  return state == 'Z' || state == 'X';
}

}  // namespace

AbortArbitration::AbortArbitration(const Communicator& world) {
  const Communicator node = world.node();
  host_ = hostname();
  node_rank_ = static_cast<std::size_t>(node.rank());
  node_.resize(static_cast<std::size_t>(node.size()));
  const std::size_t words = 1 + node_.size();
  std::array<char, 64> name{};
  if (node.rank() == 0) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    fmt::format_to_n(name.data(), name.size() - 1, "/trireme-abort-{}-{}", ::getpid(), now);
    words_ = map(create(name.data(), words), words);
    if (words_.empty()) name.front() = '\0';
    on_first_node_ = world.rank() == 0;
  }
  check(MPI_Bcast(name.data(), static_cast<int>(name.size()), MPI_CHAR, 0, node.handle()), "share a name");
  if (node.rank() != 0 && name.front() != '\0') words_ = map(::shm_open(name.data(), O_RDWR, 0600), words);
  static_assert(sizeof(Process) == 2 * sizeof(int));
  const Process own{.pid = ::getpid(), .rank = world.rank()};
  check(MPI_Allgather(&own, 2, MPI_INT, node_.data(), 2, MPI_INT, node.handle()), "share process ids");
  const bool sees_all = std::ranges::none_of(node_, has_ended, &Process::pid);
  std::array<int, 3> all{on_first_node_ ? 1 : 0, sees_all ? 1 : 0, words_.empty() ? 0 : 1};
  // Also a barrier after opening: the name can be unlinked then, and no file remains however the job ends.
  check(MPI_Allreduce(MPI_IN_PLACE, all.data(), 3, MPI_INT, MPI_MIN, node.handle()), "agree on the first node");
  on_first_node_ = all[0] != 0;
  all_share_ = all[2] != 0;
  if (all[1] == 0) node_.clear();
  if (node.rank() == 0 && !words_.empty()) ::shm_unlink(name.data());
}

AbortArbitration::~AbortArbitration() {
  if (!words_.empty()) ::munmap(words_.data(), words_.size_bytes());
}

std::string AbortArbitration::ended_ranks() const {
  return names_of([this](std::size_t rank) { return has_ended(node_[rank].pid); });
}

void AbortArbitration::set_finalized() noexcept {
  if (all_share_) finalized(node_rank_) = 1;
}

std::string AbortArbitration::unfinalized_ranks() const {
  if (!all_share_ || finalized(node_rank_) == 0) return "";
  return names_of([this](std::size_t rank) { return finalized(rank) == 0 && !has_ended(node_[rank].pid); });
}

std::string AbortArbitration::names_of(const std::function<bool(std::size_t)>& chosen) const {
  std::string ranks;
  for (std::size_t rank = 0; rank < node_.size(); ++rank)
    if (rank != node_rank_ && chosen(rank))
      ranks += fmt::format("{}rank {} on {}", ranks.empty() ? "" : ", ", node_[rank].rank, host_);
  return ranks;
}

bool AbortArbitration::claim() const noexcept { return words_.empty() || words_.front().exchange(1) == 0; }

}  // namespace trireme::mpi
