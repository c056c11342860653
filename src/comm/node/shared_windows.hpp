// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace trireme::comm {

/// Memory of this rank that the ranks of a group, all on one node, have mapped.
///
/// A window keeps its address; its memory is replaced by an anonymous file
/// (memfd_create), which the others open as /proc/PID/fd/N. No mount limits its
/// size, unmapping is not collective, and nothing remains however a job ends.
class SharedWindows {
 public:
  enum class Kind {
    common,  ///< one memory for all ranks, at the address of each
    home,    ///< the same, of which each rank keeps its part there
    own,     ///< each rank's own, which the others read
  };
  struct Window {
    Kind kind;
    std::byte* begin;
    std::size_t bytes;
    std::vector<const std::byte*> of;  ///< by rank: where this rank finds that one's
  };
  /// Gathers a few bytes of every rank, in rank order. Collective.
  using Gather = std::function<void(std::span<const std::byte> mine, std::span<std::byte> all)>;

  SharedWindows(int rank, int ranks) : rank_(rank), ranks_(ranks) {}
  SharedWindows(const SharedWindows&) = delete;
  SharedWindows& operator=(const SharedWindows&) = delete;
  ~SharedWindows();

  /// Makes `bytes` from `begin` on a window; they are zero afterwards. begin: the start of a page, in memory that ends
  /// with a whole page and is unmapped by munmap; or null if this rank has none. Collective. Returns false, on all
  /// ranks and with the memory unchanged, if a rank cannot share or open it: no memory, or no access to /proc of other
  /// processes.
  bool add(Kind kind, std::byte* begin, std::size_t bytes, const Gather& gather);
  /// The window of this kind that contains `bytes` from `address` on, or null.
  [[nodiscard]] const Window* find(Kind kind, const void* address, std::int64_t bytes) const;

 private:
  struct Mapping {
    std::byte* begin;
    std::size_t bytes;
  };

  int rank_, ranks_;
  std::vector<Window> windows_;
  std::vector<Mapping> mappings_;  ///< of the others' memory
};

}  // namespace trireme::comm
