// SPDX-License-Identifier: Apache-2.0
#include "nn/embedding.hpp"

#include <ATen/ops/empty.h>

#include "nn/common.hpp"
#include "trireme/kernels/embedding.hpp"

namespace trireme::nn {

Result Embedding::forward(at::Tensor /*hidden*/, std::span<const at::Tensor> parameters, const Microbatch& microbatch,
                          Mode /*mode*/, Saved& /*saved*/) const {
  const PlainOperators guard;
  const at::Tensor& table = parameters[0];
  at::Tensor out = at::empty({microbatch.inputs.size(0), table.size(1)}, table.options());
  kernels::embedding_gather(microbatch.inputs, table, out);
  return {.hidden = out};
}

Result Embedding::backward(at::Tensor d_hidden, std::span<const at::Tensor> /*parameters*/, std::span<const Grad> grads,
                           const Microbatch& microbatch, Saved /*saved*/) const {
  const PlainOperators guard;
  kernels::embedding_scatter_add(microbatch.inputs, d_hidden, grads[0]);
  return {};
}

}  // namespace trireme::nn
