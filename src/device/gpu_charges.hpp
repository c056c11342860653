// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

#include "trireme/device/memory.hpp"

namespace trireme::device {

/// Accounts of the blocks of libtorch's allocator on the GPU. It may be called while that allocator's lock is
/// held, and never calls back into it.
class GpuCharges {
 public:
  /// Charges the calling thread's category.
  void allocated(const void* data, std::size_t size);
  /// Does nothing for a block that is not known.
  void freed(const void* data);
  void recharge(const void* data, Category category) noexcept;

 private:
  struct Charged {
    Account account;
    Bytes bytes;
  };
  std::mutex mutex_;
  std::map<const void*, Charged> charges_;
};

/// The charges of the process. Never destroyed, as the ledger.
[[nodiscard]] GpuCharges& gpu_charges();

}  // namespace trireme::device
