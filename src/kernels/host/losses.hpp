// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "kernels/simd/rows.hpp"
#include "trireme/kernels/loss_sums.hpp"

/// The losses of a token, from the maximum `top` of its logits and their sum of exp(logit - top).
namespace trireme::kernels {

/// log(Z), where Z is the sum of exp(logit).
inline double log_partition(double top, double sum) { return top + std::log(sum); }

inline LossSums token_loss(double top, double sum, double target_logit, double z_loss) {
  const double log_z = log_partition(top, sum);
  return {.cross_entropy = std::log(sum) - (target_logit - top), .z_loss = z_loss * log_z * log_z};
}

/// Factor of softmax in the gradient: exactly 1 without z-loss.
inline float softmax_weight(double top, double sum, double z_loss) {
  return static_cast<float>(1.0 + 2.0 * z_loss * log_partition(top, sum));
}

/// Gradient of the logit of a token's target. weight: softmax_weight().
inline float target_gradient(float top, float sum, float target_logit, float scale, float weight) {
  return scale * (weight * (std::exp(target_logit - top) / sum) - 1.0F);
}

/// [2] fp64 zeros on the device of the logits.
inline at::Tensor no_loss(const at::Tensor& logits) { return at::zeros({2}, logits.options().dtype(at::kDouble)); }

inline void expect_sums(const at::Tensor& loss) {
  expect_shape(loss, {2}, at::kDouble, "a loss on a device is its two sums in fp64");
}

/// loss: [2] fp64 on the host.
inline void add(const LossSums& sums, const at::Tensor& loss) {
  auto* to = loss.mutable_data_ptr<double>();
  to[0] += sums.cross_entropy;
  to[1] += sums.z_loss;
}

/// Waits for a device.
inline LossSums read(const at::Tensor& loss) {
  return {.cross_entropy = loss[0].item<double>(), .z_loss = loss[1].item<double>()};
}

}  // namespace trireme::kernels
