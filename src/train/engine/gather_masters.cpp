// SPDX-License-Identifier: Apache-2.0
// Whole parameter blocks out of the shards of all ranks.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "trireme/device/buffer.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/shard/layout.hpp"
#include "trireme/train/engine/job.hpp"

namespace trireme::train {
namespace {

/// The flat buffer [1, padded] of a block of experts, from slices of shape [tensor ranks, those of each].
at::Tensor in_order(const at::Tensor& by_tensor_rank, const shard::BlockLayout& layout) {
  at::Tensor flat = at::empty({1, layout.padded()}, by_tensor_rank.options());
  const std::int64_t each = layout.shard_elements();
  const int tensor_ranks = static_cast<int>(by_tensor_rank.size(0));
  for (int shard = 0; shard < layout.shards(); ++shard)
    flat.narrow(1, layout.shard(shard).begin, each)
        .copy_(
            by_tensor_rank.select(0, shard % tensor_ranks).narrow(0, shard / tensor_ranks * each, each).unsqueeze(0));
  return flat;
}

}  // namespace

at::Tensor Job::gather_masters(ParamBlock block) {
  if (!whole_model_) return gather_held(block);
  const int holder = holders_[static_cast<std::size_t>(block.value)];
  const bool receives = at_.pipeline == 0 && mesh().shard_of(at_) == 0 && at_.tensor == 0;
  if (at_.pipeline == holder) {
    const auto same = [&](const model::ParameterBlock& held) { return held.name == whole_model()[block].name; };
    const auto found = std::ranges::find_if(model_.parameter_blocks, same);
    at::Tensor all = gather_held(ParamBlock{static_cast<int>(found - model_.parameter_blocks.begin())});
    if (holder > 0 && mesh().shard_of(at_) == 0 && at_.tensor == 0)
      pipeline_control()->send(all.const_data_ptr(), Bytes{static_cast<std::int64_t>(all.nbytes())}, 0);
    return all;
  }
  if (!receives) return {};
  const device::ChargeTo charge(device::Category::workspace);
  const int parts = whole_model()[block].of_experts ? 1 : mesh().tensor;
  at::Tensor all = at::empty({parts, whole_layout()[block].padded()}, at::kFloat);
  pipeline_control()->receive(all.mutable_data_ptr(), Bytes{static_cast<std::int64_t>(all.nbytes())}, holder);
  return all;
}

at::Tensor Job::gather_held(ParamBlock block) {
  const device::ChargeTo charge(device::Category::workspace);
  const at::Tensor shard = store_->masters(block).to(options_.device);  // offload keeps it on the host
  at::Tensor held = at::empty({1, shard.numel() * gather().size()}, shard.options());
  gather().all_gather(shard.const_data_ptr(), held.mutable_data_ptr(), shard.numel(), DType::fp32);
  if (!options_.control_over_link) held = device::on_host(held);  // memory of the control group's values
  at::Tensor all = held;
  if (tensor_control() != nullptr) {
    all = at::empty({mesh().tensor, held.size(1)}, held.options());
    tensor_control()->all_gather(held.const_data_ptr(), all.mutable_data_ptr(), held.numel(), DType::fp32);
  }
  if (model_[block].of_experts) all = in_order(all, layout_[block]);
  return device::on_host(all);
}

}  // namespace trireme::train
