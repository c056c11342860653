// SPDX-License-Identifier: Apache-2.0
#include "trireme/mpi/abort_arbitration.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <chrono>

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

}  // namespace

AbortArbitration::AbortArbitration(const Communicator& world) {
  const Communicator node = world.node();
  std::array<char, 64> name{};
  if (node.rank() == 0) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    fmt::format_to_n(name.data(), name.size() - 1, "/trireme-last-word-{}-{}", ::getpid(), now);
    claimed_ = map(create(name.data()));
    if (claimed_ == nullptr) name.front() = '\0';
    on_first_node_ = world.rank() == 0;
  }
  check(MPI_Bcast(name.data(), static_cast<int>(name.size()), MPI_CHAR, 0, node.handle()), "share a name");
  if (node.rank() != 0 && name.front() != '\0') claimed_ = map(::shm_open(name.data(), O_RDWR, 0600));
  int first = on_first_node_ ? 1 : 0;
  // Also waits until everybody has opened it: then the name can go, and nothing is left behind however the job ends.
  check(MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, node.handle()), "agree on the first node");
  on_first_node_ = first != 0;
  if (node.rank() == 0 && claimed_ != nullptr) ::shm_unlink(name.data());
}

AbortArbitration::~AbortArbitration() {
  if (claimed_ != nullptr) ::munmap(claimed_, sizeof(std::atomic<int>));
}

bool AbortArbitration::claim() const noexcept { return claimed_ == nullptr || claimed_->exchange(1) == 0; }

}  // namespace trireme::mpi
