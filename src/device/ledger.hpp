// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>

#include "trireme/device/memory.hpp"

namespace trireme::device {

/// The books of all charges: one lock, so that a peak's split is of one moment.
class Ledger {
 public:
  void charge(Account account, Bytes bytes) noexcept;
  void discharge(Account account, Bytes bytes) noexcept;
  /// Both at once: no peak sees the bytes twice or not at all.
  void move(Account from, Account to, Bytes bytes) noexcept;
  [[nodiscard]] std::array<SpaceUse, space_count> use() const;
  void reset_peaks();

 private:
  void add(Account account, Bytes bytes) noexcept;
  void take(Account account, Bytes bytes) noexcept;
  mutable std::mutex lock_;
  std::array<SpaceUse, space_count> spaces_;
};

/// Declares that the step computes on a GPU: no memory of the host is charged to Space::device any more.
void set_host_memory_apart();
/// The account of host memory requested by `account`.
[[nodiscard]] Account in_host_memory(Account account) noexcept;

/// The process's ledger. Never destroyed: tensors of static lifetime are discharged after main.
[[nodiscard]] Ledger& ledger();

}  // namespace trireme::device
