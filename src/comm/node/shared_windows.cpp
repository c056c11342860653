// SPDX-License-Identifier: Apache-2.0
#include "comm/node/shared_windows.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "comm/node/shared_pages.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/descriptor.hpp"

namespace trireme::comm {
namespace {

/// A rank's description of its memory's file.
struct Offer {
  std::int64_t process, descriptor;
  std::uint64_t mark;  ///< also written after the memory: another process may have the same number elsewhere
};

/// A file's mapping, from `window_lead` on, that ends with this, unless it is released.
class Mapped {
 public:
  Mapped() = default;
  Mapped(int file, std::size_t bytes) : bytes_(bytes) {
    void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, window_lead);
    if (at != MAP_FAILED) begin_ = static_cast<std::byte*>(at);
  }
  Mapped(Mapped&& other) noexcept : begin_(std::exchange(other.begin_, nullptr)), bytes_(other.bytes_) {}
  Mapped& operator=(Mapped&& other) noexcept {
    std::swap(begin_, other.begin_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  ~Mapped() {
    if (begin_ != nullptr) ::munmap(begin_, bytes_);
  }

  [[nodiscard]] std::byte* begin() const { return begin_; }
  /// Unmaps all after the first `bytes`; moves these to `to`, replacing its mapping, or leaves them in place if null.
  std::byte* release(std::size_t bytes, std::byte* to) {
    ::munmap(begin_ + bytes, bytes_ - bytes);
    bytes_ = bytes;
    if (to != nullptr)
      invariant(::mremap(begin_, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to, "a window's memory moves");
    std::byte* const kept = std::exchange(begin_, nullptr);
    return to != nullptr ? to : kept;
  }

 private:
  std::byte* begin_ = nullptr;
  std::size_t bytes_ = 0;
};

/// An anonymous file without permission to execute, as required by vm.memfd_noexec = 2. Linux before 6.3 lacks the
/// flag. -1: none.
int nameless_file() {
  constexpr unsigned noexec_seal = 8;  // MFD_NOEXEC_SEAL, which glibc 2.36 has not
  const int file = ::memfd_create("trireme-window", MFD_CLOEXEC | noexec_seal);
  return file >= 0 || errno != EINVAL ? file : ::memfd_create("trireme-window", MFD_CLOEXEC);
}

/// Replaces pages by huge pages, if the kernel can: large products read whole matrices of them.
void take_huge_pages(std::byte* begin, std::size_t bytes) {
  const auto at = reinterpret_cast<std::uintptr_t>(begin);
  const std::uintptr_t first = (at + huge_page - 1) / huge_page * huge_page,
                       last = (at + bytes) / huge_page * huge_page;
  constexpr int collapse = 25;  // MADV_COLLAPSE, which glibc 2.36 has not
  if (first < last) (void)::madvise(reinterpret_cast<void*>(first), last - first, collapse);
}

std::uint64_t read_mark(const std::byte* behind) {
  std::uint64_t mark = 0;
  std::memcpy(&mark, behind, sizeof mark);
  return mark;
}

}  // namespace

SharedWindows::~SharedWindows() {
  for (const Mapping& mapping : mappings_) ::munmap(mapping.begin, mapping.bytes);
}

bool SharedWindows::add(Kind kind, std::byte* begin, std::size_t bytes, const Gather& gather) {
  const bool common = kind != Kind::own;
  const std::size_t size = whole_pages(bytes), with_mark = size + page, length = window_lead + with_mark;
  const auto ranks = static_cast<std::size_t>(ranks_), own = static_cast<std::size_t>(rank_);
  invariant(reinterpret_cast<std::uintptr_t>(begin) % page == 0, "a window begins with a page");

  // The owner's file: rank 0's of a common window.
  const io::Descriptor file(common && rank_ != 0 ? -1 : nameless_file());
  const Offer mine{.process = ::getpid(), .descriptor = file.get(), .mark = std::random_device{}() | 1ULL << 40};
  Mapped made;
  if (file.get() >= 0 && ::ftruncate(file.get(), static_cast<off_t>(length)) == 0 &&
      ::posix_fallocate(file.get(), static_cast<off_t>(window_lead + size), static_cast<off_t>(page)) == 0) {
    made = Mapped(file.get(), with_mark);
    if (made.begin() != nullptr) std::memcpy(made.begin() + size, &mine.mark, sizeof mine.mark);
  }
  std::vector<Offer> offers(ranks);
  gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(offers)));

  std::vector<Mapped> maps(ranks);
  bool all_there = begin != nullptr && (made.begin() != nullptr || (common && rank_ != 0));
  // First touch: a rank allocates its own window, or its part of a common one, on its NUMA node.
  const std::size_t part = common ? whole_pages((size + ranks - 1) / ranks) : size, from = common ? own * part : 0;
  const auto take_pages = [&](int descriptor) {
    if (from < size && ::posix_fallocate(descriptor, static_cast<off_t>(window_lead + from),
                                         static_cast<off_t>(std::min(part, size - from))) != 0)
      all_there = false;
  };
  if (all_there && file.get() >= 0) take_pages(file.get());
  for (std::size_t rank = 0; rank < (common ? 1 : ranks) && all_there; ++rank) {
    if (rank == own) continue;
    const Offer& theirs = offers[rank];
    const io::Descriptor there(
        theirs.descriptor < 0
            ? -1
            : ::open(fmt::format("/proc/{}/fd/{}", theirs.process, theirs.descriptor).c_str(), O_RDWR | O_CLOEXEC));
    if (there.get() >= 0 && ::lseek(there.get(), 0, SEEK_END) == static_cast<off_t>(length))
      maps[rank] = Mapped(there.get(), with_mark);
    all_there = maps[rank].begin() != nullptr && read_mark(maps[rank].begin() + size) == theirs.mark;
    if (common && all_there) take_pages(there.get());
  }
  const std::byte mine_there{all_there};
  std::vector<std::byte> there(ranks);
  gather({&mine_there, 1}, there);
  if (std::find(there.begin(), there.end(), std::byte{false}) != there.end()) return false;

  Mapped& here = common && rank_ != 0 ? maps[0] : made;
  Window window{.kind = kind, .begin = here.release(size, begin), .bytes = bytes, .of = {}};
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    window.of.push_back(begin);
    if (common || rank == own) continue;
    window.of.back() = mappings_.emplace_back(maps[rank].release(size, nullptr), size).begin;
  }
  // Huge pages are made by one rank, found by the others. Where the system has none (before Linux 6.1) it stays as it
  // is.
  const bool makes = file.get() >= 0;
  if (makes) take_huge_pages(begin, size);
  gather({&mine_there, 1}, there);
  if (!makes) take_huge_pages(begin, size);
  windows_.push_back(std::move(window));
  return true;
}

const SharedWindows::Window* SharedWindows::find(Kind kind, const void* address, std::int64_t bytes) const {
  const auto* const at = static_cast<const std::byte*>(address);
  for (const Window& window : windows_)
    if (window.kind == kind && at >= window.begin && at + bytes <= window.begin + window.bytes) return &window;
  return nullptr;
}

}  // namespace trireme::comm
