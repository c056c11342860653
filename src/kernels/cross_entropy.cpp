// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/cross_entropy.hpp"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/parallel.hpp"
#include "kernels/rows.hpp"
#include "trireme/kernels/cuda.hpp"
#include "trireme/kernels/row_kernels.hpp"

namespace trireme::kernels {
namespace {

void expect_vector(const at::Tensor& logits, const at::Tensor& targets) {
  expect_shape(targets, {logits.size(0)}, at::kInt, "cross_entropy: the targets do not fit the logits");
}

void expect_targets(const at::Tensor& logits, const at::Tensor& targets) {
  expect_vector(logits, targets);
  const auto* target = targets.const_data_ptr<std::int32_t>();
  invariant(
      std::all_of(target, target + targets.numel(), [&](std::int32_t t) { return t >= -1 && t < logits.size(1); }),
      "cross_entropy: a target is outside the vocabulary");
}

double loss_of(Softmax s, float logit) {
  return std::log(static_cast<double>(s.sum)) - (static_cast<double>(logit) - static_cast<double>(s.top));
}

Softmax softmax(const float* row, std::int64_t n) { return row_kernels.softmax_fp32(row, n); }
Softmax softmax(const c10::BFloat16* row, std::int64_t n) { return row_kernels.softmax_bf16(row, n); }

float target_gradient(Softmax s, float logit, double scale) {
  return static_cast<float>(scale) * (std::exp(logit - s.top) / s.sum - 1.0F);
}

/// Turns a row of logits into its gradient; returns its loss.
double turn_row(float* row, std::int32_t target, double scale, std::int64_t n) {
  const float logit = row[target];
  Softmax s{.top = row_kernels.maximum(row, n), .sum = 0};
  s.sum = row_kernels.exponentials(row, n, 1.0F, s.top);
  const float factor = static_cast<float>(scale) / s.sum;
  for (std::int64_t i = 0; i < n; ++i) row[i] *= factor;
  row[target] = target_gradient(s, logit, scale);
  return loss_of(s, logit);
}
double turn_row(c10::BFloat16* row, std::int32_t target, double scale, std::int64_t n) {
  const float logit = get(row[target]);
  const Softmax s = row_kernels.softmax_bf16(row, n);
  row_kernels.softmax_gradient_bf16(row, s.top, static_cast<float>(scale) / s.sum, n);  // not rounded in between
  put(row[target], target_gradient(s, logit, scale));
  return loss_of(s, logit);
}

template <class PerRow>
double sum_rows(std::int64_t count, const PerRow& per_row) {
  std::vector<double> losses(static_cast<std::size_t>(count));
  parallel(count, [&](std::int64_t n) { losses[static_cast<std::size_t>(n)] = per_row(n); });
  double sum = 0;
  for (const double loss : losses) sum += loss;
  return sum;
}

at::Tensor no_loss(const at::Tensor& logits) { return at::zeros({1}, logits.options().dtype(at::kDouble)); }

}  // namespace

void add_cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& loss) {
  expect_shape(loss, {1}, at::kDouble, "cross_entropy: the loss is one number in fp64");
  expect_vector(logits, targets);
  if (logits.is_cuda()) return cuda::cross_entropy(logits, targets, loss);
  *loss.mutable_data_ptr<double>() += cross_entropy(logits, targets);
}

void add_cross_entropy_backward(const at::Tensor& logits, const at::Tensor& targets, double scale,
                                const at::Tensor& loss) {
  expect_shape(loss, {1}, at::kDouble, "cross_entropy: the loss is one number in fp64");
  expect_vector(logits, targets);
  if (logits.is_cuda()) return cuda::cross_entropy_backward(logits, targets, scale, loss);
  *loss.mutable_data_ptr<double>() += cross_entropy_backward(logits, targets, scale);
}

double cross_entropy(const at::Tensor& logits, const at::Tensor& targets) {
  if (logits.is_cuda()) {
    const at::Tensor loss = no_loss(logits);
    add_cross_entropy(logits, targets, loss);
    return loss.item<double>();
  }
  expect_targets(logits, targets);
  const auto* target = targets.const_data_ptr<std::int32_t>();
  return with_type(logits, [&]<class T>(T) {
    const auto matrix = rows<T>(logits);
    return sum_rows(matrix.count, [=](std::int64_t n) {
      if (target[n] < 0) return 0.0;
      return loss_of(softmax(matrix[n], matrix.width), get(matrix[n][target[n]]));
    });
  });
}

double cross_entropy_backward(const at::Tensor& logits, const at::Tensor& targets, double scale) {
  if (logits.is_cuda()) {
    const at::Tensor loss = no_loss(logits);
    add_cross_entropy_backward(logits, targets, scale, loss);
    return loss.item<double>();
  }
  expect_targets(logits, targets);
  const auto* target = targets.const_data_ptr<std::int32_t>();
  return with_type(logits, [&]<class T>(T) {
    const auto matrix = rows<T>(logits);
    return sum_rows(matrix.count, [=](std::int64_t n) {
      T* row = matrix[n];
      if (target[n] < 0) {
        std::fill(row, row + matrix.width, T(0));
        return 0.0;
      }
      return turn_row(row, target[n], scale, matrix.width);
    });
  });
}

}  // namespace trireme::kernels
