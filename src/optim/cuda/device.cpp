// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/device.hpp"

#include <ATen/ops/empty.h>

#include "kernels/cuda/launchers.hpp"
#include "kernels/cuda/tensors.hpp"
#include "optim/cuda/passes.hpp"
#include "trireme/base/error.hpp"

namespace trireme::optim {
namespace {

using kernels::cuda::data;

void check(const AdamWStep& step, std::span<const UpdateRange> ranges, const at::Tensor& gradient,
           const DeviceState& state, const at::Tensor& compute) {
  const bool split = state.remainder.defined();
  for (const at::Tensor& tensor : {gradient, split ? gradient : state.master})
    invariant(tensor.scalar_type() == at::kFloat && tensor.numel() == gradient.numel(),
              "masters are fp32 and as long as the gradient");
  const bool rounds = state.m.scalar_type() == at::kBFloat16;
  for (const at::Tensor& tensor : {state.m, state.v})
    invariant(tensor.scalar_type() == (rounds ? at::kBFloat16 : at::kFloat) && tensor.numel() == gradient.numel(),
              "moments are fp32 or bf16 and as long as the gradient");
  invariant(!split || (compute.defined() && !state.master.defined() && state.remainder.scalar_type() == at::kBFloat16 &&
                       state.remainder.numel() == gradient.numel()),
            "split masters are two halves as long as the gradient");
  invariant(!compute.defined() || (compute.scalar_type() == at::kBFloat16 && compute.numel() == gradient.numel()),
            "the compute copy is bf16 and as long as the gradient");
  expect_update(step, ranges, gradient.numel(), rounds);
}

}  // namespace

void adamw(const AdamWStep& step, std::span<const UpdateRange> ranges, const at::Tensor& gradient,
           const DeviceState& state, const at::Tensor& compute) {
  check(step, ranges, gradient, state, compute);
  const cuda::Streams streams{.gradient = data<const float>(gradient),
                              .master = state.master.defined() ? data<float>(state.master) : nullptr,
                              .m = state.m.mutable_data_ptr(),
                              .v = state.v.mutable_data_ptr(),
                              .rounded_moments = state.m.scalar_type() == at::kBFloat16,
                              .compute = compute.defined() ? data<c10::BFloat16>(compute) : nullptr,
                              .remainder = state.remainder.defined()
                                               ? reinterpret_cast<std::int16_t*>(data<c10::BFloat16>(state.remainder))
                                               : nullptr};
  const AdamWScalars numbers = scalars(step, 0);
  while (!ranges.empty()) {
    const auto now = ranges.first(std::min<std::size_t>(ranges.size(), cuda::Ranges::most));
    cuda::Ranges part{.count = static_cast<int>(now.size())};
    for (std::size_t i = 0; i < now.size(); ++i) {
      part.begin[i] = now[i].elements.begin;
      part.end[i] = now[i].elements.end;
      const AdamWScalars of_group = scalars(step, now[i].group);
      part.step_size[i] = of_group.step_size;
      part.decay[i] = of_group.decay;
      part.key[i] = now[i].key;
      part.first[i] = now[i].whole.first;
      part.length[i] = now[i].whole.length;
      part.stride[i] = now[i].whole.stride;
    }
    cuda::adamw(numbers, part, streams);
    ranges = ranges.subspan(now.size());
  }
}

void sum_of_squares(const at::Tensor& values, const shard::Range& range, const at::Tensor& into) {
  invariant(values.scalar_type() == at::kFloat && range.begin >= 0 && range.end <= values.numel(),
            "sum_of_squares: the range does not lie inside the values");
  invariant(into.scalar_type() == at::kDouble && into.numel() == 1, "sum_of_squares: the sum is one number in fp64");
  const at::Tensor partial = at::empty({cuda::square_chunks(range.size())}, into.options());
  cuda::squares(data<const float>(values) + range.begin, range.size(), data<double>(partial));
  kernels::cuda::add_sum(data<const double>(partial), partial.numel(), data<double>(into));
}

}  // namespace trireme::optim
