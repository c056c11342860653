// SPDX-License-Identifier: Apache-2.0
#include "nn/positions.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "nn/common.hpp"
#include "trireme/base/error.hpp"
#include "trireme/kernels/embedding.hpp"

namespace trireme::nn {

at::Tensor Positions::positions_of(std::int64_t count, const Microbatch& m, at::Device device) const {
  const std::int64_t first = part_ * count;
  if (device.is_cuda()) {
    at::Tensor ids = at::arange(first, first + count, at::TensorOptions(device).dtype(at::kInt)).remainder_(m.seq_len);
    if (context_.ranks == 1) return ids.add_(m.past);
    const std::int64_t whole = m.seq_len * context_.ranks, run = context_.run(whole);
    const std::int64_t gap = context_.second_run(whole) - context_.first_run(whole) - run;  // between the two runs
    return ids.add_(ids.ge(run).to(at::kInt).mul_(gap)).add_(context_.first_run(whole));
  }
  at::Tensor ids = at::empty({count}, at::kInt);
  auto* id = ids.mutable_data_ptr<std::int32_t>();
  for (std::int64_t i = 0; i < count; ++i)
    id[i] = static_cast<std::int32_t>(m.past + context_.position((first + i) % m.seq_len, m.seq_len * context_.ranks));
  return ids;
}

Result Positions::forward(at::Tensor hidden, std::span<const at::Tensor> parameters, const Microbatch& microbatch,
                          Mode /*mode*/, Saved& /*saved*/) const {
  const PlainOperators guard;
  const std::int64_t count = hidden.size(0);
  invariant(microbatch.past + microbatch.seq_len * context_.ranks <= parameters[0].size(0),
            "a sequence is longer than there are learned positions");
  at::Tensor out = at::empty_like(hidden);
  kernels::embedding_gather(positions_of(count, microbatch, hidden.device()), parameters[0], out);
  return {.hidden = out.add_(hidden)};
}

Result Positions::backward(at::Tensor d_hidden, std::span<const at::Tensor> /*parameters*/, std::span<const Grad> grads,
                           const Microbatch& microbatch, Saved /*saved*/) const {
  const PlainOperators guard;
  const std::int64_t count = d_hidden.size(0);
  kernels::embedding_scatter_add(positions_of(count, microbatch, d_hidden.device()), d_hidden, grads[0]);
  return {.hidden = std::move(d_hidden)};
}

}  // namespace trireme::nn
