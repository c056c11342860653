// SPDX-License-Identifier: Apache-2.0
#include "trireme/device/memory.hpp"

#include <sys/mman.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <utility>

#include "device/block_cache.hpp"
#include "device/ledger.hpp"

namespace trireme::device {
namespace {

thread_local Account account_of_this_thread;

/// The value of a `VmRSS:   1234 kB` line.
Bytes kilobytes(const std::string& line) { return {std::stoll(line.substr(line.find(':') + 1)) * 1024}; }

}  // namespace

const std::array<Category, category_count>& all_categories() {
  static constexpr std::array all{
      Category::parameters_sharded,
      Category::parameters_unsharded,
      Category::parameters_resharded,
      Category::gradients_sharded,
      Category::gradients_unsharded,
      Category::optimizer,
      Category::activations,
      Category::workspace,
      Category::communication,
      Category::data,
      Category::other,
  };
  static_assert(all.size() == category_count);
  return all;
}

std::string_view to_text(Category category) {
  switch (category) {
    case Category::parameters_sharded: return "parameters.sharded";
    case Category::parameters_unsharded: return "parameters.unsharded";
    case Category::parameters_resharded: return "parameters.resharded";
    case Category::gradients_sharded: return "gradients.sharded";
    case Category::gradients_unsharded: return "gradients.unsharded";
    case Category::optimizer: return "optimizer";
    case Category::activations: return "activations";
    case Category::workspace: return "workspace";
    case Category::communication: return "communication";
    case Category::data: return "data";
    case Category::other: return "other";
  }
  return "other";
}

std::string_view to_text(Space space) { return space == Space::device ? "device" : "host"; }

Account current_account() { return account_of_this_thread; }

ChargeTo::ChargeTo(Account account) : outer_{std::exchange(account_of_this_thread, account)} {}
ChargeTo::~ChargeTo() { account_of_this_thread = outer_; }

Charge::Charge(Account account, Bytes bytes) : account_{in_host_memory(account)}, bytes_{bytes} {
  ledger().charge(account_, bytes);
}

Charge Charge::of_gpu(Category category, Bytes bytes) {
  Charge charge;
  charge.account_ = {category, Space::device};
  charge.bytes_ = bytes;
  ledger().charge(charge.account_, bytes);
  return charge;
}

Charge::~Charge() {
  if (bytes_.value != 0) ledger().discharge(account_, bytes_);
}
Charge::Charge(Charge&& other) noexcept : account_{other.account_}, bytes_{std::exchange(other.bytes_, Bytes{})} {}
Charge& Charge::operator=(Charge&& other) noexcept {
  std::swap(account_, other.account_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Bytes ByCategory::sum() const {
  Bytes total;
  for (const Bytes b : bytes) total += b;
  return total;
}

MemoryUse memory_use() {
  const BlockCache::Counts counts = block_cache().counts();
  return {.spaces = ledger().use(),
          .allocated = counts.allocated,
          .cached = counts.cached,
          .reserved = counts.reserved,
          .peak_reserved = counts.peak_reserved,
          .allocations = counts.allocations,
          .reused = counts.reused};
}

void reset_peaks() {
  ledger().reset_peaks();
  block_cache().reset_peak();
}

ProcessMemory process_memory() {
  ProcessMemory memory;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) memory.resident.current = kilobytes(line);
    if (line.starts_with("VmHWM:")) memory.resident.peak = kilobytes(line);
    if (line.starts_with("VmSize:")) memory.mapped.current = kilobytes(line);
    if (line.starts_with("VmPeak:")) memory.mapped.peak = kilobytes(line);
  }
  return memory;
}

bool can_map(Bytes bytes) {
  if (bytes.value <= 0) return true;
  const auto size = static_cast<std::size_t>(bytes.value);
  void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return false;
  munmap(at, size);
  return true;
}

}  // namespace trireme::device
