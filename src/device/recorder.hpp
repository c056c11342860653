// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <mutex>

#include "trireme/device/history.hpp"

namespace trireme::device {

/// Keeps the history of the allocator's blocks while it is on; costs one load of a flag while it is off.
class Recorder {
 public:
  void start(std::size_t most);
  void allocated(const void* data, Bytes size, Account account) noexcept {
    if (on_.load(std::memory_order_relaxed)) add({.address = address(data), .size = size, .account = account});
  }
  void freed(const void* data, Bytes size, Account account) noexcept {
    if (on_.load(std::memory_order_relaxed))
      add({.allocated = false, .address = address(data), .size = size, .account = account});
  }
  [[nodiscard]] MemoryHistory history() const;

 private:
  static std::uintptr_t address(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }
  void add(MemoryEvent event) noexcept;

  std::atomic<bool> on_ = false;
  mutable std::mutex lock_;
  std::size_t most_ = 0;
  std::deque<MemoryEvent> events_;
  std::map<std::uintptr_t, MemoryEvent> live_;
  std::int64_t dropped_ = 0;
};

/// The process's recorder; never destroyed, as the ledger.
[[nodiscard]] Recorder& recorder();

}  // namespace trireme::device
