// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/model/decoder.hpp"

namespace trireme::nn {

/// Computation between the products of the head and its logits: a divisor, then a softcap c = cap tanh(x / cap).
class LogitScale {
 public:
  explicit LogitScale(const model::Decoder& decoder) : divisor_(decoder.logit_divisor), cap_(decoder.logit_softcap) {}

  /// In place.
  void apply(const at::Tensor& logits) const;
  /// The slope of the softcap, shaped as `logits`, which `apply` gave: call it before they become their own
  /// gradient. Undefined without a softcap.
  [[nodiscard]] at::Tensor slope(const at::Tensor& logits) const;
  /// Turns the gradient by the logits, in place, into that by the products.
  void backward(const at::Tensor& d_logits, const at::Tensor& slope) const;

 private:
  double divisor_, cap_;
};

}  // namespace trireme::nn
