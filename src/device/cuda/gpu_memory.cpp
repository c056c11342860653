// SPDX-License-Identifier: Apache-2.0
#include "device/gpu_memory.hpp"

#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>

#include "device/charged_block.hpp"
#include "device/cuda/charging.hpp"
#include "device/cuda/check.hpp"
#include "device/gpu_charges.hpp"
#include "device/out_of_memory.hpp"
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

/// Limit set by `cap_gpu_memory`; 0: none. Set before the first step.
Bytes& budget() {
  static Bytes bytes;
  return bytes;
}

}  // namespace

c10::DataPtr page_locked(c10::DataPtr memory, std::size_t bytes) {
  if (bytes == 0) return memory;
  cuda::check(cudaHostRegister(memory.get(), bytes, cudaHostRegisterPortable), "lock pages of the host's memory");
  void* const data = memory.release_context();
  return {data, data, &free_page_locked, c10::Device(c10::DeviceType::CPU)};
}

void cap_gpu_memory(c10::Device gpu, Bytes most, Bytes all) {
  // libtorch takes a fraction only. Beyond it the allocator returns cached blocks, tries again, and then fails.
  CUDACachingAllocator::setMemoryFraction(fraction_of(most, all), gpu.index());
  budget() = most;
}

void recharge_on_gpu(const void* data, Category category) noexcept { gpu_charges().recharge(data, category); }

namespace cuda {

void charge_gpu_memory() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Called while the allocator's lock is held.
    CUDACachingAllocator::attachAllocatorTraceTracker([](const TraceEntry& entry) {
      const auto* const data = reinterpret_cast<const void*>(entry.addr_);
      if (entry.action_ == TraceEntry::ALLOC) gpu_charges().allocated(data, entry.size_);
      if (entry.action_ == TraceEntry::FREE_COMPLETED) gpu_charges().freed(data);
    });
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
