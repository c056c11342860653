// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <array>

#include "trireme/base/philox.hpp"
#include "trireme/device/buffer.hpp"
#include "trireme/shard/copies.hpp"
#include "trireme/store/masters.hpp"
#include "trireme/store/parameter_store.hpp"

namespace trireme::store {

using device::Category;
using device::Space;

namespace {

/// 8 MiB of masters: they stay in the last level of cache until they are rounded or copied.
constexpr std::int64_t chunk_elements = std::int64_t{1} << 21;
constexpr std::int64_t grain = std::int64_t{1} << 14;

template <class T>
std::span<T> elements_of(const at::Tensor& tensor) {
  return {static_cast<T*>(tensor.mutable_data_ptr()), static_cast<std::size_t>(tensor.numel())};
}

/// Elements `range` of a shard, which `pieces` describe in the order of their offsets: zero between them. out: theirs
/// alone.
void fill_range(const ParameterInitializer& provider, const model::ParameterBlock& block,
                std::span<const shard::Slice> pieces, shard::Range range, float* out) {
  std::int64_t filled = range.begin;
  const auto end_of = [](const shard::Slice& piece) { return piece.offset + piece.elements.size(); };
  for (auto piece = std::ranges::upper_bound(pieces, range.begin, {}, end_of);
       piece != pieces.end() && piece->offset < range.end; ++piece) {
    const std::int64_t begin = std::max(range.begin, piece->offset), end = std::min(range.end, end_of(*piece));
    const std::int64_t first = piece->elements.begin + begin - piece->offset;
    std::fill(out + (filled - range.begin), out + (begin - range.begin), 0.0F);
    provider(block.parameters[static_cast<std::size_t>(piece->parameter)], {first, first + end - begin},
             {out + (begin - range.begin), static_cast<std::size_t>(end - begin)});
    filled = end;
  }
  std::fill(out + (filled - range.begin), out + range.size(), 0.0F);
}

}  // namespace

ParameterInitializer initial_values(std::uint64_t seed) {
  const auto fill = [seed](const model::Parameter& parameter, shard::Range elements, std::span<float> out) {
    if (parameter.filling != model::Filling::normal)
      std::ranges::fill(out, parameter.filling == model::Filling::ones ? 1.0F : 0.0F);
    else
      fill_normal(stream_key(seed, parameter.name), static_cast<std::uint64_t>(elements.begin), parameter.std, out);
  };
  return {fill, /*concurrent=*/true};
}

struct ParameterStore::Staging {
  at::Tensor masters, gathered, remainder;
  std::optional<c10::Event> copied;

  /// `count` elements of `memory`: page-locked where `compute` is a GPU, which then copies concurrently with the host.
  static at::Tensor of(at::Tensor& memory, std::int64_t count, DType type, at::Device compute) {
    if (!memory.defined() || memory.numel() < count) {
      memory.reset();
      memory = device::buffer(Category::other, count, type, Space::host, compute);
    }
    return memory.narrow(0, 0, count);
  }
  void wait() {
    if (copied) copied->synchronize();
    copied.reset();
  }
};

void ParameterStore::fill(const ParameterInitializer& provider) {
  std::array<Staging, 2> staging;
  std::size_t chunks = 0;
  for (int b = 0; b < layout_.blocks(); ++b) {
    const ParamBlock block{b};
    const std::int64_t elements = layout_[block].shard_elements();
    const std::vector<shard::Slice> pieces = shard::whole_slices(model_[block], layout_[block], shard_of(block));
    // Files are read in the fewest calls, into memory that is not page-locked: a block is large.
    const std::int64_t step = provider.concurrent() ? chunk_elements : std::max<std::int64_t>(elements, 1);
    for (std::int64_t begin = 0; begin < elements; begin += step)
      fill_chunk(provider, block, pieces, {begin, std::min(elements, begin + step)},
                 staging[provider.concurrent() ? chunks++ % staging.size() : 0]);
    masters_changed(block);
  }
  for (Staging& each : staging) each.wait();
}

void ParameterStore::fill_chunk(const ParameterInitializer& provider, ParamBlock block,
                                std::span<const shard::Slice> pieces, shard::Range chunk, Staging& staging) {
  const auto chunk_of = [&](const at::Tensor& shard) { return shard.narrow(0, chunk.begin, chunk.size()); };
  const at::Tensor gathered = chunk_of(host_compute_shard(block));
  const bool on_gpu = gathered.is_cuda(), in_place = !on_gpu && !split_masters_;
  const at::Device beside = provider.concurrent() ? device_ : at::Device(at::kCPU);
  staging.wait();
  const at::Tensor masters =
      in_place ? chunk_of(master(block))
               : Staging::of(staging.masters, chunk.size(), DType::fp32, split_masters_ ? at::kCPU : beside);
  auto* const values = masters.mutable_data_ptr<float>();
  const auto make = [&](std::int64_t begin, std::int64_t end) {
    fill_range(provider, model_[block], pieces, {chunk.begin + begin, chunk.begin + end}, values + begin);
  };
  if (provider.concurrent())
    at::parallel_for(0, chunk.size(), grain, make);
  else
    make(0, chunk.size());
  if (split_masters_) {
    const at::Tensor rest = chunk_of(remainder(block));
    const auto half = [&](at::Tensor& memory, const at::Tensor& kept) {
      return on_gpu ? Staging::of(memory, chunk.size(), DType::bf16, beside) : kept;
    };
    const at::Tensor nearest = half(staging.gathered, gathered), lower = half(staging.remainder, rest);
    store::split_masters(elements_of<const float>(masters), elements_of<c10::BFloat16>(nearest), words(lower));
    if (on_gpu) {
      gathered.copy_(nearest, /*non_blocking=*/true);
      rest.copy_(lower, /*non_blocking=*/true);
    }
  } else {
    const at::Tensor kept = chunk_of(master(block));
    if (on_gpu) kept.copy_(masters, /*non_blocking=*/true);
    if (compute_ != DType::fp32) gathered.copy_(kept);
  }
  if (!on_gpu) return;
  staging.copied.emplace(device_.type());
  staging.copied->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
}

}  // namespace trireme::store
