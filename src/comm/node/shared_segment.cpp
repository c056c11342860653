// SPDX-License-Identifier: Apache-2.0
#include "comm/node/shared_segment.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <limits>
#include <string>

#include "comm/node/dead_segments.hpp"
#include "comm/node/shared_pages.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/base/io/descriptor.hpp"
#include "trireme/base/units.hpp"

namespace trireme::comm {
namespace {

// The first rank's errno of all ranks' (0: none failed): the same answer everywhere.
int first_failure(const mpi::Communicator& communicator, int error) {
  int worst = 0;
  mpi::check(MPI_Allreduce(&error, &worst, 1, MPI_INT, MPI_MAX, communicator.handle()), "agree on a shared segment");
  return worst;
}

// Between processes: not FUTEX_PRIVATE. Returns at once when `word` is no longer `seen`, and after a second in any
// case.
void sleep_on(const std::atomic<std::uint32_t>& word, std::uint32_t seen) {
  const timespec patience{.tv_sec = 1, .tv_nsec = 0};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &patience, nullptr, 0);
}

void wake_all(const std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}

[[noreturn]] void fail(const char* what, int error, std::size_t bytes) {
  throw EnvironmentError(
      fmt::format("A shared-memory segment of {} could not be {}: {}. Make /dev/shm larger (containers: --shm-size), "
                  "or set comm.backend = \"mpi\".",
                  to_text(Bytes{static_cast<std::int64_t>(bytes)}), what, std::strerror(error)));
}

}  // namespace

SharedSegment::SharedSegment(const mpi::Communicator& communicator, std::size_t area_bytes)
    : communicator_(&communicator),
      rank_(communicator.rank()),
      ranks_(communicator.size()),
      half_bytes_(whole_pages(area_bytes / 2)),
      flags_bytes_(whole_pages(sizeof(Flags) * static_cast<std::size_t>(ranks_))),
      total_bytes_(flags_bytes_ + 2 * half_bytes_ * static_cast<std::size_t>(ranks_)) {
  // Rank 0 creates and names it; all ranks open it, and each touches the pages of its area on its NUMA node.
  std::array<char, 64> name{};
  int descriptor = -1;
  int error = 0;
  if (rank_ == 0) {
    static const bool first = (remove_dead_segments(), true);
    (void)first;
    static std::atomic<unsigned> count = 0;
    fmt::format_to_n(name.data(), name.size() - 1, "/{}{}-{}-{}", segment_prefix, ::getpid(), count++,
                     mpi::Clock::now().time_since_epoch().count());
    descriptor = ::shm_open(name.data(), O_CREAT | O_EXCL | O_RDWR, 0600);
    // The creator locks it until its name is removed: an unlocked segment was left behind.
    if (descriptor < 0 || ::ftruncate(descriptor, static_cast<off_t>(total_bytes_)) != 0) error = errno;
    if (descriptor >= 0) (void)::flock(descriptor, LOCK_EX);
    (void)fault::point("shm.create");
  }
  mpi::check(MPI_Bcast(name.data(), static_cast<int>(name.size()), MPI_CHAR, 0, communicator.handle()),
             "share a segment's name");
  error = first_failure(communicator, error);
  if (error == 0 && rank_ != 0) {
    descriptor = ::shm_open(name.data(), O_RDWR, 0600);
    if (descriptor < 0) error = errno;
  }
  const io::Descriptor file(descriptor);
  if (error == 0) {
    const std::size_t area = flags_bytes_ + 2 * half_bytes_ * static_cast<std::size_t>(rank_);
    error = ::posix_fallocate(file.get(), static_cast<off_t>(area), static_cast<off_t>(2 * half_bytes_));
    if (error == 0 && rank_ == 0) error = ::posix_fallocate(file.get(), 0, static_cast<off_t>(flags_bytes_));
  }
  if (error == 0) {
    void* mapped = ::mmap(nullptr, total_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (mapped == MAP_FAILED)
      error = errno;
    else
      memory_ = static_cast<std::byte*>(mapped);  // zero: no round written, none read
  }
  error = first_failure(communicator, error);
  if (rank_ == 0) ::shm_unlink(name.data());  // nothing is left behind, however the job ends
  if (error != 0) {
    if (memory_ != nullptr) ::munmap(memory_, total_bytes_);
    fail("made", error, total_bytes_);
  }
}

SharedSegment::~SharedSegment() { ::munmap(memory_, total_bytes_); }

std::byte* SharedSegment::half(int rank, std::uint64_t round) const {
  return memory_ + flags_bytes_ + half_bytes_ * (2 * static_cast<std::size_t>(rank) + round % 2);
}

template <class Done>
void SharedSegment::await_flags(int rank, mpi::Wait& wait, Done&& done) {
  Flags& theirs = flags(rank);
  wait.until([&] { return done(theirs); }, [&] { return communicator_->name_of(rank); },
             [&](mpi::Backoff&) {
               // A writer that changes a flag after `seen` was read changes the event too, and sees the sleeper or ends
               // the wait.
               const std::uint32_t seen = theirs.event.load();
               if (done(theirs)) return;
               theirs.sleepers.fetch_add(1);
               sleep_on(theirs.event, seen);
               theirs.sleepers.fetch_sub(1);
             });
}

void SharedSegment::notify() {
  Flags& own = flags(rank_);
  own.event.fetch_add(1);
  if (own.sleepers.load() > 0) wake_all(own.event);
}

void SharedSegment::await_free(mpi::Wait& wait) {
  if (written_ < 2) return;
  for (int rank = 0; rank < ranks_; ++rank)
    if (rank != rank_)
      await_flags(rank, wait,
                  [this](Flags& theirs) { return theirs.released.load(std::memory_order_acquire) >= written_ - 1; });
}

void SharedSegment::publish() {
  flags(rank_).published.store(++written_, std::memory_order_release);
  notify();
}

void SharedSegment::await(int rank, mpi::Wait& wait) {
  await_flags(rank, wait, [this](Flags& theirs) { return theirs.published.load(std::memory_order_acquire) > read_; });
}

void SharedSegment::release() {
  flags(rank_).released.store(++read_, std::memory_order_release);
  notify();
}

}  // namespace trireme::comm
