// SPDX-License-Identifier: Apache-2.0
#include "nn/logits.hpp"

#include <ATen/TensorOperators.h>

namespace trireme::nn {

void LogitScale::apply(const at::Tensor& logits) const {
  if (divisor_ != 1) logits.div_(divisor_);
  if (cap_ > 0) logits.div_(cap_).tanh_().mul_(cap_);
}

at::Tensor LogitScale::slope(const at::Tensor& logits) const {
  return cap_ > 0 ? logits.div(cap_).square_().neg_().add_(1) : at::Tensor();
}

void LogitScale::backward(const at::Tensor& d_logits, const at::Tensor& slope) const {
  if (slope.defined()) d_logits.mul_(slope);
  if (divisor_ != 1) d_logits.div_(divisor_);
}

}  // namespace trireme::nn
