// SPDX-License-Identifier: Apache-2.0
#include "nn/embedding.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <c10/util/BFloat16.h>

#include <cmath>

#include "nn/common.hpp"
#include "trireme/kernels/embedding.hpp"

namespace trireme::nn {

EmbeddingScale::EmbeddingScale(const model::Decoder& decoder, std::int64_t width)
    : scale_(decoder.embedding_root ? std::sqrt(static_cast<double>(width)) : decoder.embedding_scale),
      rounded_(decoder.embedding_root) {}

double EmbeddingScale::in(at::ScalarType type) const {
  return rounded_ && type == at::kBFloat16 ? static_cast<float>(c10::BFloat16(static_cast<float>(scale_))) : scale_;
}

void EmbeddingScale::apply(const at::Tensor& hidden) const {
  if (scale_ != 1) hidden.mul_(in(hidden.scalar_type()));
}

at::Tensor EmbeddingScale::backward(const at::Tensor& d_hidden) const {
  return scale_ == 1 ? d_hidden : d_hidden * in(d_hidden.scalar_type());
}

Result Embedding::forward(at::Tensor /*hidden*/, std::span<const at::Tensor> parameters, const Microbatch& microbatch,
                          Mode /*mode*/, Saved& /*saved*/) const {
  const PlainOperators guard;
  const at::Tensor& table = parameters[0];
  at::Tensor out = at::empty({microbatch.inputs.size(0), table.size(1)}, table.options());
  kernels::embedding_gather(microbatch.inputs, table, out);
  scale_.apply(out);
  return {.hidden = out};
}

Result Embedding::backward(at::Tensor d_hidden, std::span<const at::Tensor> /*parameters*/, std::span<const Grad> grads,
                           const Microbatch& microbatch, Saved /*saved*/) const {
  const PlainOperators guard;
  kernels::embedding_scatter_add(microbatch.inputs, scale_.backward(d_hidden), grads[0]);
  return {};
}

}  // namespace trireme::nn
