// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "trireme/base/units.hpp"

namespace trireme::comm {

class Wait;

/// How `total` items (elements or bytes) lie on the ranks: equal parts in rank order, the last ones short or empty.
struct Parts {
  std::int64_t total = 0;
  std::int64_t part = 0;
  [[nodiscard]] std::int64_t begin(int rank) const { return std::min(rank * part, total); }
  [[nodiscard]] std::int64_t length(int rank) const { return std::min((rank + 1) * part, total) - begin(rank); }
};

/// What moves the bytes of one group on one lane: MPI, shared memory, NCCL later, or a test's fake. `Collectives` owns
/// one, counts its calls and gives every call a `Wait`, which a transport must use for all waiting. It is called only
/// when there are two ranks or more.
class Transport {
 public:
  virtual ~Transport() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  [[nodiscard]] virtual std::string name() const = 0;

  /// Gathers part r of rank r into `whole` [parts.total bytes]. mine: this rank's part, possibly within `whole`.
  virtual void all_gather(const std::byte* mine, std::byte* whole, Parts bytes, Wait& wait) = 0;
  /// Sums over the ranks in rank order, starting from rank 0's term; this rank's part goes to, or is added to, `mine`.
  /// Terms are rounded to bf16 when wire is bf16. mine: possibly this rank's part of `whole`.
  virtual void reduce_scatter(const float* whole, float* mine, Parts elements, DType wire, bool accumulate,
                              Wait& wait) = 0;
  virtual void broadcast(std::span<std::byte> bytes, int root, Wait& wait) = 0;
  virtual void barrier(Wait& wait) = 0;
};

}  // namespace trireme::comm
