// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>

#include <algorithm>
#include <vector>

#include "trireme/device/buffer.hpp"
#include "trireme/train/engine/job.hpp"

namespace trireme::train {
namespace {

/// Index of a router's correction bias in a block; -1: it has none.
int bias_in(const model::ParameterBlock& block) {
  const auto found = std::ranges::find(block.parameters, model::Role::router_bias, &model::Parameter::role);
  return found == block.parameters.end() ? -1 : static_cast<int>(found - block.parameters.begin());
}

}  // namespace

void Job::share_choice_biases() {
  if (shared_version_ == store_->masters_version()) return;
  shared_version_ = store_->masters_version();
  std::vector<double> values;  // of all layers of this pipeline rank, each on the rank of the first replica that has it
  for (int b = 0; b < model_.param_blocks(); ++b) {
    const ParamBlock block{b};
    const int bias = bias_in(model_[block]);
    if (bias < 0) continue;
    const auto first = static_cast<std::ptrdiff_t>(values.size());
    values.resize(values.size() + static_cast<std::size_t>(model_[{block, bias}].elements()));
    if (at_.replicate != 0) continue;
    const at::Tensor masters = store_->masters(block);
    for (const shard::Slice& slice : layout_[block].slices(store_->shard_of(block)))
      if (slice.parameter == bias)
        std::copy_n(device::on_host(masters.narrow(0, slice.offset, slice.elements.size())).const_data_ptr<float>(),
                    slice.elements.size(), values.begin() + first + slice.elements.begin);
  }
  if (values.empty()) return;
  control().sum(values);
  auto next = values.begin();
  for (int b = 0; b < model_.param_blocks(); ++b) {
    const ParamBlock block{b};
    const int bias = bias_in(model_[block]);
    if (bias < 0) continue;
    at::Tensor& whole = store_->choice_bias(block);
    whole = at::empty({model_[{block, bias}].elements()}, at::kFloat);
    auto* const to = whole.mutable_data_ptr<float>();
    for (std::int64_t e = 0; e < whole.numel(); ++e) to[e] = static_cast<float>(*next++);
  }
}

}  // namespace trireme::train
