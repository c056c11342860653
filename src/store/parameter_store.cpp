// SPDX-License-Identifier: Apache-2.0
#include "trireme/store/parameter_store.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/device/buffer.hpp"
#include "trireme/shard/copies.hpp"
#include "trireme/store/masters.hpp"

namespace trireme::store {

using device::Category;
using device::Space;

namespace {

template <class T>
std::span<T> span(const at::Tensor& tensor) {
  return {tensor.mutable_data_ptr<std::remove_const_t<T>>(), static_cast<std::size_t>(tensor.numel())};
}

/// The first block of each ring, whose sizes all of its blocks have.
std::vector<ParamBlock> first_of_rings(const model::Model& model) {
  const std::vector<int> ring_of = schedule::rings(model);
  std::vector<ParamBlock> first;
  for (std::size_t b = 0; b < ring_of.size(); ++b)
    if (ring_of[b] == static_cast<int>(first.size())) first.push_back(ParamBlock{static_cast<int>(b)});
  return first;
}

/// Changes a tensor by way of the host's memory.
template <class Change>
void on_host_and_back(at::Tensor& tensor, Change change) {
  at::Tensor here = device::on_host(tensor);
  change(here);
  if (!here.is_same(tensor)) tensor.copy_(here);
}

}  // namespace

Buffers buffers_for(std::span<const schedule::Schedule> schedules, const model::Model& model, bool trains) {
  Buffers all{.trains = trains};
  const auto grow = [](std::vector<int>& sizes, const std::vector<int>& by) {
    sizes.resize(by.size(), 0);
    for (std::size_t i = 0; i < by.size(); ++i) sizes[i] = std::max(sizes[i], by[i]);
  };
  for (const schedule::Schedule& schedule : schedules) {
    const schedule::RingSizes sizes = schedule::ring_sizes(schedule, model);
    grow(all.rings.parameters, sizes.parameters);
    grow(all.rings.gradients, sizes.gradients);
    grow(all.rings.uploads, sizes.uploads);
    grow(all.rings.downloads, sizes.downloads);
    all.rings.sends = std::max(all.rings.sends, sizes.sends);
    all.rings.receives = std::max(all.rings.receives, sizes.receives);
    const std::vector<schedule::OnHost> where = schedule::on_host(schedule, model);
    all.on_host.resize(where.size(), schedule::OnHost::nothing);
    for (std::size_t b = 0; b < where.size(); ++b) all.on_host[b] = std::max(all.on_host[b], where[b]);
    const std::vector<bool> transient = schedule::transient_gradients(schedule, model);
    all.transient_gradients.resize(transient.size());
    for (std::size_t b = 0; b < transient.size(); ++b)
      all.transient_gradients[b] = all.transient_gradients[b] || transient[b];
    if (const auto group = schedule::reshard_group(schedule)) all.reshard_group = group;
    all.partial = all.partial || schedule::has_partial(schedule);
  }
  return all;
}

ParameterStore::ParameterStore(const model::Model& model, const shard::Layout& layout, int shard_rank,
                               const Buffers& buffers, DType compute, at::Device device)
    : model_(model),
      layout_(layout),
      shard_rank_(shard_rank),
      compute_(compute),
      device_(device),
      on_host_(buffers.on_host),
      travelling_memory_(buffers.travelling_memory),
      split_masters_(buffers.split_masters) {
  invariant(!split_masters_ || compute == DType::bf16, "masters are split where bf16 is gathered");
  choice_bias_.resize(static_cast<std::size_t>(layout.blocks()));
  common_.resize(static_cast<std::size_t>(layout.blocks()));
  invariant(shard_rank >= 0 && shard_rank < layout.shards(), "the shard rank lies within the layout's shards");
  allocate_shards(buffers);
  allocate_rings(buffers);
}

at::Tensor ParameterStore::travelling(Category category, std::int64_t elements, DType type) const {
  return travelling_memory_ ? travelling_memory_(category, elements, type)
                            : device::buffer(category, elements, type, Space::device, device_);
}

void ParameterStore::allocate_shards(const Buffers& buffers) {
  if (buffers.trains) states_.resize(buffers.optimizer.states().size());
  std::int64_t largest = 0;
  for (int b = 0; b < layout_.blocks(); ++b) {
    const std::int64_t elements = layout_[ParamBlock{b}].shard_elements();
    const schedule::OnHost where = on_host(ParamBlock{b});
    const Space home = where == schedule::OnHost::nothing ? Space::device : Space::host;
    const auto shard = [&](Category category, DType type, bool travels = false) {
      return travels && home == Space::device ? travelling(category, elements, type)
                                              : device::buffer(category, elements, type, home, device_);
    };
    const bool as_they_are = compute_ == DType::fp32;
    master_.push_back(split_masters_ ? at::Tensor() : shard(Category::parameters_sharded, DType::fp32, as_they_are));
    remainder_.push_back(split_masters_ ? shard(Category::parameters_sharded, DType::bf16) : at::Tensor());
    host_compute_shard_.push_back(as_they_are ? master_.back() : shard(Category::parameters_sharded, compute_, true));
    switch (where) {
      case schedule::OnHost::nothing: compute_shard_.push_back(host_compute_shard_.back()); break;
      case schedule::OnHost::optimizer:
        compute_shard_.push_back(travelling(Category::parameters_sharded, elements, compute_));
        break;
      case schedule::OnHost::parameters: compute_shard_.emplace_back(); break;
    }
    if (buffers.reshard_group)
      group_copy_.push_back(travelling(Category::parameters_resharded,
                                       layout_[ParamBlock{b}].padded() / *buffers.reshard_group, compute_));
    largest = std::max(largest, elements);
    if (!buffers.trains) continue;
    const bool transient =
        !buffers.transient_gradients.empty() && buffers.transient_gradients[static_cast<std::size_t>(b)];
    without_gradient_.push_back(
        shard::without_gradient(model_[ParamBlock{b}], layout_[ParamBlock{b}], shard_of(ParamBlock{b})));
    gradient_.push_back(transient ? device::without_memory(elements, DType::fp32, device_)
                                  : shard(Category::gradients_sharded, DType::fp32, true));
    for (std::size_t i = 0; i < states_.size(); ++i) {
      const auto state = buffers.optimizer.state_layout(model_[ParamBlock{b}], layout_[ParamBlock{b}],
                                                        shard_of(ParamBlock{b}), static_cast<int>(i));
      states_[i].push_back(
          device::buffer(Category::optimizer, state.elements, buffers.optimizer.states()[i].type, home, device_));
    }
  }
  for (const optimizer::OwnerPlan::Buffers& slot : buffers.matrices) {
    const DType type = buffers.optimizer.matrices().value().type;
    const auto messages = [&](std::int64_t elements) {
      return device::buffer(Category::optimizer, elements, type, Space::device, device_);
    };
    matrix_pieces_.push_back(messages(slot.pieces));
    owned_matrices_.push_back(messages(slot.owned));
  }
  if (buffers.partial) partial_ = travelling(Category::gradients_sharded, largest, DType::fp32);
}

void ParameterStore::allocate_rings(const Buffers& buffers) {
  const schedule::RingSizes& rings = buffers.rings;
  const std::vector<ParamBlock> first = first_of_rings(model_);
  for (const auto& [ring, count] : {std::pair{&send_ring_, rings.sends}, {&receive_ring_, rings.receives}}) {
    ring->emplace_back();
    for (int i = 0; i < count; ++i)
      ring->back().push_back(
          device::buffer(Category::communication, buffers.stream_elements, compute_, Space::device, device_));
  }
  for (std::size_t ring = 0; ring < rings.parameters.size(); ++ring) {
    const std::int64_t elements = layout_[first[ring]].gathered(), shard = layout_[first[ring]].shard_elements();
    parameter_ring_.emplace_back();
    gradient_ring_.emplace_back();
    upload_ring_.emplace_back();
    download_ring_.emplace_back();
    for (int i = 0; i < rings.uploads[ring]; ++i)
      upload_ring_.back().push_back(travelling(Category::parameters_sharded, shard, compute_));
    for (int i = 0; buffers.trains && i < rings.downloads[ring]; ++i)
      download_ring_.back().push_back(travelling(Category::gradients_sharded, shard, DType::fp32));
    for (int i = 0; i < rings.parameters[ring]; ++i)
      parameter_ring_.back().push_back(travelling(Category::parameters_unsharded, elements, compute_));
    for (int i = 0; buffers.trains && i < rings.gradients[ring]; ++i)
      gradient_ring_.back().push_back(travelling(Category::gradients_unsharded, elements, DType::fp32));
  }
}

void ParameterStore::lie_in_common(ParamBlock block, const at::Tensor& whole, int part) {
  const std::int64_t elements = layout_[block].shard_elements();
  invariant(on_host(block) == schedule::OnHost::nothing, "what lives on the host is in no memory that gathers fill");
  invariant(whole.numel() == layout_[block].gathered() && whole.scalar_type() == device::to_torch(compute_),
            "the memory that ranks have in common holds what they gather");
  const at::Tensor own = whole.narrow(0, part * elements, elements);
  compute_shard(block) = host_compute_shard(block) = own;
  if (compute_ == DType::fp32) master(block) = own;
  charges_.emplace_back(device::Account{Category::parameters_sharded, Space::device},
                        Bytes{elements * size_of(compute_)});
  at(common_, block) = whole;
}

std::vector<ParameterStore::Travelling> ParameterStore::all_travelling() const {
  using enum Travelling::Over;
  std::vector<Travelling> all;
  const auto add = [&](Travelling::Over over, ParamBlock block, const at::Tensor& memory, bool whole = false) {
    if (memory.defined() && memory.device() == device_ && memory.numel() > 0 && device::has_memory(memory))
      all.push_back({over, block, memory, whole});
  };
  for (int b = 0; b < layout_.blocks(); ++b) {
    const auto i = static_cast<std::size_t>(b);
    add(gather, ParamBlock{b}, compute_shard_[i]);
    if (!group_copy_.empty()) add(gather_of_copies, ParamBlock{b}, group_copy_[i]);
    if (!gradient_.empty()) add(reduce, ParamBlock{b}, gradient_[i]);
  }
  const std::vector<ParamBlock> first = first_of_rings(model_);
  bool experts = false, others = false;
  for (std::size_t ring = 0; ring < parameter_ring_.size(); ++ring) {
    const ParamBlock member = first[ring];
    for (const at::Tensor& slot : parameter_ring_[ring]) {
      add(gather, member, slot, true);
      if (!group_copy_.empty()) add(gather_of_copies, member, slot, true);
    }
    for (const at::Tensor& slot : upload_ring_[ring]) add(gather, member, slot);
    for (const at::Tensor& slot : gradient_ring_[ring]) add(reduce, member, slot, true);
    for (const at::Tensor& slot : download_ring_[ring]) add(reduce, member, slot);
    bool& added = model_[member].of_experts ? experts : others;
    if (!std::exchange(added, true)) add(reduce, member, partial_);
  }
  return all;
}

void ParameterStore::allocate_gradient(ParamBlock block, bool poison) {
  const at::Tensor& shard = gradient(block);
  device::give_memory(shard, Category::gradients_sharded);
  if (poison) shard.fill_(std::numeric_limits<float>::quiet_NaN());
  for (const shard::Range& range : without_gradient_[static_cast<std::size_t>(block.value)])
    shard.narrow(0, range.begin, range.size()).zero_();
}

void ParameterStore::free_gradient(ParamBlock block) { device::take_memory(gradient(block)); }

at::Tensor ParameterStore::masters(ParamBlock block) {
  if (!split_masters_) return master(block);
  const at::Tensor gathered = device::on_host(host_compute_shard(block)), rest = device::on_host(remainder(block));
  at::Tensor all = device::buffer(Category::other, gathered.numel(), DType::fp32, Space::host);
  join_masters(span<const c10::BFloat16>(gathered), words(rest), span<float>(all));
  return all;
}

void ParameterStore::put_masters(ParamBlock block, const at::Tensor& values) {
  if (!split_masters_) {
    if (!master(block).is_same(values)) master(block).copy_(values);
    return;
  }
  on_host_and_back(host_compute_shard(block), [&](at::Tensor& gathered) {
    on_host_and_back(remainder(block), [&](at::Tensor& rest) {
      store::split_masters(span<const float>(device::on_host(values)), span<c10::BFloat16>(gathered), words(rest));
    });
  });
}

void ParameterStore::put_choice_bias(ParamBlock block) {
  const at::Tensor& whole = choice_bias(block);
  if (!whole.defined()) return;
  for (const shard::Slice& slice : layout_[block].slices(shard_of(block))) {
    if (model_[model::ParamRef{block, slice.parameter}].role != model::Role::router_bias) continue;
    // A GPU copies later, when the next step may have changed it.
    const at::Tensor values = whole.narrow(0, slice.elements.begin, slice.elements.size()).clone();
    const auto put = [&](const at::Tensor& shard, const at::Tensor& from) {
      shard.narrow(0, slice.offset, slice.elements.size()).copy_(from, /*non_blocking=*/true);
    };
    if (!split_masters_) {
      put(master(block), values);
      continue;
    }
    const at::Tensor gathered = at::empty(values.sizes(), at::kBFloat16),
                     rest = at::empty(values.sizes(), at::kBFloat16);
    store::split_masters(span<const float>(values), span<c10::BFloat16>(gathered), words(rest));
    put(host_compute_shard(block), gathered);
    put(remainder(block), rest);
  }
}

void ParameterStore::derive_compute_shard(ParamBlock block) {
  if (compute_ != DType::fp32 && !split_masters_) host_compute_shard(block).copy_(master(block));
  masters_changed(block);
}

void ParameterStore::masters_changed(ParamBlock block) {
  ++masters_version_;
  if (on_host(block) == schedule::OnHost::optimizer) compute_shard(block).copy_(host_compute_shard(block));
}

at::Tensor ParameterStore::view(const at::Tensor& flat, model::ParamRef ref) const {
  const shard::Range range = layout_[ref.block].range(ref.index);
  const shard::Range there = layout_[ref.block].gathered_by(shard_of(ref.block));
  if (range.begin < there.begin || range.end > there.end) return {};
  return device::view(flat, range.begin - there.begin, model_[ref].shape);  // gradient shards may have no memory yet
}

}  // namespace trireme::store
