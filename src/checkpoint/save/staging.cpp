// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/save/staging.hpp"

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/device/buffer.hpp"
#include "trireme/device/memory.hpp"

namespace trireme::checkpoint {
namespace {

/// The first number of a one-line file; nothing if the file is missing or holds "max".
std::optional<std::int64_t> number_in(const char* path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

/// Stack and buffers of the thread that writes the copy.
constexpr Bytes of_writer{16 << 20};

}  // namespace

Bytes available_host_memory() {
  std::int64_t bytes = std::numeric_limits<std::int64_t>::max();
  std::ifstream memory("/proc/meminfo");
  for (std::string line; std::getline(memory, line);)
    if (line.starts_with("MemAvailable:")) bytes = 1024 * std::stoll(line.substr(line.find(':') + 1));
  const auto limit = number_in("/sys/fs/cgroup/memory.max");
  const auto used = number_in("/sys/fs/cgroup/memory.current");
  if (limit && used) bytes = std::min(bytes, std::max<std::int64_t>(0, *limit - *used));
  return Bytes{bytes};
}

Bytes staging_bytes(const Shards& shards) { return shards.optimizer.saved_bytes(shards.model, shards.layout); }

Staging::Staging(const Shards& shards, int ranks_on_node) : blocks_(shards.model.param_blocks()) {
  const Bytes needed = staging_bytes(shards);
  const Bytes available = available_host_memory();
  const device::ProcessMemory before = device::process_memory();
  const Bytes next_step = before.resident.peak - before.resident.current;
  if (fault::point("ckpt.memory") || (needed + next_step).value > available.value / ranks_on_node)
    throw EnvironmentError(
        fmt::format("a copy of what a rank saves takes {}, its next step {} more than it holds now, and {} ranks share "
                    "the {} that this node has left; set checkpoint.async = false, or use more nodes",
                    to_text(needed), to_text(next_step), ranks_on_node, to_text(available)));
  const Bytes held = before.mapped.current - device::memory_use().cached;
  for (const Quantity quantity : all_quantities)
    for (int b = 0; b < blocks_; ++b)
      copies_.push_back(device::buffer(device::Category::other,
                                       static_cast<std::int64_t>(shards.values(quantity, ParamBlock{b}).size()),
                                       DType::fp32, device::Space::host));
  const Bytes again = before.mapped.peak - held - device::memory_use().cached;
  if (!device::can_map(again + of_writer))
    throw EnvironmentError(fmt::format(
        "a copy of what a rank saves takes {}, and its next step then {} more address space than the system "
        "gives; set checkpoint.async = false, or raise ulimit -v",
        to_text(needed), to_text(again)));
}

void Staging::copy(const Shards& shards) {
  (void)fault::point("ckpt.copy");
  auto to = copies_.begin();
  for (const Quantity quantity : all_quantities)
    for (int b = 0; b < blocks_; ++b) {
      const std::span<float> from = shards.values(quantity, ParamBlock{b});
      (to++)->copy_(at::from_blob(from.data(), {static_cast<std::int64_t>(from.size())}, at::kFloat));
    }
}

Shards Staging::shards(const Shards& like) const {
  return {.model = like.model,
          .whole = like.whole,
          .layout = like.layout,
          .mesh = like.mesh,
          .at = like.at,
          .values =
              [this](Quantity quantity, ParamBlock block) {
                const at::Tensor& copy =
                    copies_[static_cast<std::size_t>(static_cast<int>(quantity) * blocks_ + block.value)];
                return std::span(copy.mutable_data_ptr<float>(), static_cast<std::size_t>(copy.numel()));
              },
          .optimizer = like.optimizer};
}

}  // namespace trireme::checkpoint
