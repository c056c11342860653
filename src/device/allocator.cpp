// SPDX-License-Identifier: Apache-2.0
#include "trireme/device/allocator.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "device/block_cache.hpp"
#include "device/charged_block.hpp"
#include "device/ledger.hpp"
#include "device/out_of_memory.hpp"
#include "device/recorder.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"

namespace trireme::device {
namespace {

const c10::Device cpu(c10::DeviceType::CPU);

OutOfMemoryHelp& help() {
  static OutOfMemoryHelp& words = *new OutOfMemoryHelp;
  return words;
}

/// Injected by TRIREME_FAULT in tests: within a step only, so that it is an op that fails.
bool refused_by_a_fault() {
  static const bool armed = fault::armed();
  return armed && current_operation().op != no_op && fault::point("memory.allocate");
}

class ChargingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override { return allocate_charged(bytes, current_account(), Kind::cached); }
  c10::DeleterFnPtr raw_deleter() const override { return &free_charged; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
};

}  // namespace

c10::DataPtr allocate_charged(std::size_t bytes, Account account, Kind kind) {
  if (bytes == 0) return {nullptr, nullptr, &free_charged, cpu};
  account = in_host_memory(account);
  Block* block = refused_by_a_fault()  ? nullptr
                 : kind == Kind::exact ? block_cache().take_exact(bytes)
                                       : block_cache().take(bytes);
  if (block == nullptr) {
    constexpr auto largest = static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max() / 2);
    throw EnvironmentError(no_memory_text(account, {static_cast<std::int64_t>(std::min(bytes, largest))}));
  }
  block->account = account;
  ledger().charge(account, Bytes{static_cast<std::int64_t>(bytes)});
  recorder().allocated(block->data(), Bytes{static_cast<std::int64_t>(bytes)}, account);
  return {block->data(), block->data(), &free_charged, cpu};
}

void free_charged(void* data) noexcept {
  if (data == nullptr) return;
  Block& block = Block::of(data);
  const Bytes bytes{static_cast<std::int64_t>(block.requested)};
  ledger().discharge(block.account, bytes);
  recorder().freed(data, bytes, block.account);
  block_cache().give(block);
}

void recharge(void* data, Account account) noexcept {
  Block& block = Block::of(data);
  const Bytes bytes{static_cast<std::int64_t>(block.requested)};
  account = in_host_memory(account);
  ledger().move(block.account, account, bytes);
  recorder().freed(data, bytes, block.account);
  recorder().allocated(data, bytes, account);
  block.account = account;
}

std::string no_memory_text(Account account, Bytes asked) {
  return out_of_memory_text(account, asked, memory_use(), help());
}

std::string no_gpu_memory_text(Account account, Bytes asked, Bytes reserved, Bytes allocated, Bytes budget) {
  MemoryUse use = memory_use();
  use.reserved = reserved;
  use.allocated = allocated;
  return out_of_memory_text(account, asked, use, help(), budget);
}

void help_out_of_memory(OutOfMemoryHelp words) { help() = std::move(words); }

void install_allocator() {
  // Never destroyed: libtorch keeps the pointer, and tensors of static lifetime are freed after main.
  static ChargingAllocator& allocator = *new ChargingAllocator;
  constexpr std::uint8_t highest_priority = 255;
  c10::SetAllocator(c10::DeviceType::CPU, &allocator, highest_priority);
}

Bytes trim() { return block_cache().trim(); }
void set_limit(Bytes limit) { block_cache().set_limit(limit); }
void set_cache_limit(Bytes limit) { block_cache().set_cache_limit(limit); }

}  // namespace trireme::device
