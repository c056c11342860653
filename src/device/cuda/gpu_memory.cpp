// SPDX-License-Identifier: Apache-2.0
#include "device/gpu_memory.hpp"

#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include <map>
#include <memory>
#include <mutex>

#include "device/charged_block.hpp"
#include "device/cuda/charging.hpp"
#include "device/cuda/check.hpp"
#include "device/ledger.hpp"
#include "device/out_of_memory.hpp"
#include "device/recorder.hpp"
#include "trireme/base/error.hpp"
#include "trireme/device/allocator.hpp"
#include "trireme/device/gpus.hpp"

namespace trireme::device {
namespace {

namespace CUDACachingAllocator = c10::cuda::CUDACachingAllocator;
using CUDACachingAllocator::TraceEntry;

void free_page_locked(void* data) noexcept {
  (void)cudaHostUnregister(data);
  free_charged(data);
}

/// Who pays for libtorch's blocks on the GPU. Called while its allocator's lock is held: never calls back into it.
class Charges {
 public:
  void operator()(const TraceEntry& entry) {
    if (entry.action_ == TraceEntry::ALLOC) allocated(entry.addr_, entry.size_);
    if (entry.action_ == TraceEntry::FREE_COMPLETED) freed(entry.addr_);
  }
  void recharge(const void* data, Category category) noexcept {
    const std::scoped_lock lock(mutex_);
    const auto found = charges_.find(reinterpret_cast<std::size_t>(data));
    if (found == charges_.end()) return;
    Charged& charged = found->second;
    const Account account{category, Space::device};
    ledger().move(charged.account, account, charged.bytes);
    recorder().freed(data, charged.bytes, charged.account);
    recorder().allocated(data, charged.bytes, account);
    charged.account = account;
  }

 private:
  struct Charged {
    Account account;
    Bytes bytes;
  };
  static const void* address(std::size_t at) { return reinterpret_cast<const void*>(at); }

  void allocated(std::size_t at, std::size_t size) {
    const Charged charged{{current_account().category, Space::device}, {static_cast<std::int64_t>(size)}};
    const std::scoped_lock lock(mutex_);
    charges_[at] = charged;
    ledger().charge(charged.account, charged.bytes);
    recorder().allocated(address(at), charged.bytes, charged.account);
  }
  void freed(std::size_t at) {
    const std::scoped_lock lock(mutex_);
    const auto found = charges_.find(at);
    if (found == charges_.end()) return;
    ledger().discharge(found->second.account, found->second.bytes);
    recorder().freed(address(at), found->second.bytes, found->second.account);
    charges_.erase(found);
  }

  std::mutex mutex_;
  std::map<std::size_t, Charged> charges_;
};

/// What `cap_gpu_memory` was told; 0: nothing. Set before the first step.
Bytes& budget() {
  static Bytes bytes;
  return bytes;
}

/// Never destroyed, as the ledger.
Charges& charges() {
  static Charges& all = *new Charges;
  return all;
}

}  // namespace

c10::DataPtr page_locked(c10::DataPtr memory, std::size_t bytes) {
  if (bytes == 0) return memory;
  cuda::check(cudaHostRegister(memory.get(), bytes, cudaHostRegisterPortable), "lock pages of the host's memory");
  void* const data = memory.release_context();
  return {data, data, &free_page_locked, c10::Device(c10::DeviceType::CPU)};
}

void cap_gpu_memory(c10::Device gpu, Bytes most, Bytes all) {
  // libtorch knows a fraction only. Beyond it the allocator gives back what it caches, tries again, and then fails.
  CUDACachingAllocator::setMemoryFraction(fraction_of(most, all), gpu.index());
  budget() = most;
}

void recharge_on_gpu(const void* data, Category category) noexcept { charges().recharge(data, category); }

namespace cuda {

void charge_gpu_memory() {
  static std::once_flag once;
  std::call_once(once, [] {
    CUDACachingAllocator::attachAllocatorTraceTracker([](const TraceEntry& entry) { charges()(entry); });
    CUDACachingAllocator::attachOutOfMemoryObserver([](std::int64_t gpu, std::size_t asked, std::size_t, std::size_t) {
      // Called without the allocator's lock. Its statistics count all kinds of blocks at index 0.
      const auto statistics = CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(gpu));
      throw EnvironmentError(no_gpu_memory_text(
          {current_account().category, Space::device}, {static_cast<std::int64_t>(asked)},
          {statistics.reserved_bytes[0].current}, {statistics.allocated_bytes[0].current}, budget()));
    });
  });
}

}  // namespace cuda
}  // namespace trireme::device
