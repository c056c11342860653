// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/cross_entropy.hpp"

#include <algorithm>
#include <vector>

#include "kernels/cuda.hpp"
#include "kernels/host/losses.hpp"
#include "kernels/simd/parallel.hpp"
#include "kernels/simd/row_kernels.hpp"
#include "kernels/simd/rows.hpp"

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

Softmax softmax(const float* row, std::int64_t n) { return row_kernels.softmax_fp32(row, n); }
Softmax softmax(const c10::BFloat16* row, std::int64_t n) { return row_kernels.softmax_bf16(row, n); }

/// Turns a row of logits into its gradient; returns its losses.
LossSums turn_row(float* row, std::int32_t target, float scale, double z_loss, std::int64_t n) {
  const float logit = row[target];
  Softmax s{.top = row_kernels.maximum(row, n), .sum = 0};
  s.sum = row_kernels.exponentials(row, n, 1.0F, s.top);
  const float weight = softmax_weight(s.top, s.sum, z_loss);
  const float factor = scale * weight / s.sum;
  for (std::int64_t i = 0; i < n; ++i) row[i] *= factor;
  row[target] = target_gradient(s.top, s.sum, logit, scale, weight);
  return token_loss(s.top, s.sum, logit, z_loss);
}
LossSums turn_row(c10::BFloat16* row, std::int32_t target, float scale, double z_loss, std::int64_t n) {
  const float logit = get(row[target]);
  const Softmax s = row_kernels.softmax_bf16(row, n);
  const float weight = softmax_weight(s.top, s.sum, z_loss);
  row_kernels.softmax_gradient_bf16(row, s.top, scale * weight / s.sum, n);  // not rounded in between
  put(row[target], target_gradient(s.top, s.sum, logit, scale, weight));
  return token_loss(s.top, s.sum, logit, z_loss);
}

template <class PerRow>
LossSums sum_rows(std::int64_t count, const PerRow& per_row) {
  std::vector<LossSums> losses(static_cast<std::size_t>(count));
  parallel(count, [&](std::int64_t n) { losses[static_cast<std::size_t>(n)] = per_row(n); });
  LossSums sums;
  for (const LossSums& of_row : losses) sums += of_row;
  return sums;
}

}  // namespace

void add_cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& loss) {
  expect_sums(loss);
  expect_vector(logits, targets);
  if (logits.is_cuda()) return cuda::cross_entropy(logits, targets, loss);
  add({.cross_entropy = cross_entropy(logits, targets)}, loss);
}

void add_cross_entropy_backward(const at::Tensor& logits, const at::Tensor& targets, double scale, double z_loss,
                                const at::Tensor& loss) {
  expect_sums(loss);
  expect_vector(logits, targets);
  if (logits.is_cuda()) return cuda::cross_entropy_backward(logits, targets, scale, z_loss, loss);
  add(cross_entropy_backward(logits, targets, scale, z_loss), loss);
}

double cross_entropy(const at::Tensor& logits, const at::Tensor& targets) {
  if (logits.is_cuda()) {
    const at::Tensor loss = no_loss(logits);
    add_cross_entropy(logits, targets, loss);
    return read(loss).cross_entropy;
  }
  expect_targets(logits, targets);
  const auto* target = targets.const_data_ptr<std::int32_t>();
  return with_type(logits, [&]<class T>(T) {
    const auto matrix = rows<T>(logits);
    const LossSums sums = sum_rows(matrix.count, [=](std::int64_t n) {
      if (target[n] < 0) return LossSums{};
      const Softmax s = softmax(matrix[n], matrix.width);
      return token_loss(s.top, s.sum, get(matrix[n][target[n]]), 0);
    });
    return sums.cross_entropy;
  });
}

LossSums cross_entropy_backward(const at::Tensor& logits, const at::Tensor& targets, double scale, double z_loss) {
  if (logits.is_cuda()) {
    const at::Tensor loss = no_loss(logits);
    add_cross_entropy_backward(logits, targets, scale, z_loss, loss);
    return read(loss);
  }
  expect_targets(logits, targets);
  const auto* target = targets.const_data_ptr<std::int32_t>();
  return with_type(logits, [&]<class T>(T) {
    const auto matrix = rows<T>(logits);
    return sum_rows(matrix.count, [=](std::int64_t n) {
      T* row = matrix[n];
      if (target[n] < 0) {
        std::fill(row, row + matrix.width, T(0));
        return LossSums{};
      }
      return turn_row(row, target[n], static_cast<float>(scale), z_loss, matrix.width);
    });
  });
}

}  // namespace trireme::kernels
