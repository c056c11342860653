// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/cross_entropy.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/parallel.hpp"
#include "kernels/rows.hpp"
#include "trireme/kernels/lanes.hpp"

namespace trireme::kernels {
namespace {

void expect_targets(const at::Tensor& logits, const at::Tensor& targets) {
  expect_shape(targets, {logits.size(0)}, at::kInt, "cross_entropy: the targets do not fit the logits");
  const auto* target = targets.const_data_ptr<std::int32_t>();
  invariant(
      std::all_of(target, target + targets.numel(), [&](std::int32_t t) { return t >= -1 && t < logits.size(1); }),
      "cross_entropy: a target is outside the vocabulary");
}

/// A row's maximum and the sum of exp(logit - maximum): relative to the maximum nothing is lost to a common offset of
/// the logits.
struct Softmax {
  float top, sum;
  [[nodiscard]] double loss(float logit) const {
    return std::log(static_cast<double>(sum)) - (static_cast<double>(logit) - static_cast<double>(top));
  }
};

template <class T>
Softmax softmax(const T* row, std::int64_t width) {
  const float top =
      lane_max(width, [&](std::int64_t i, auto lanes) { return keep(load(row + i, lanes), eight(-INFINITY), lanes); });
  const float sum = lane_sum(width, [&](std::int64_t i, auto lanes) {
    return keep(fast_exp<false>(load(row + i, lanes) - top), Eight{}, lanes);
  });
  return {.top = top, .sum = sum};
}

template <class T>
void gradient_row(T* row, std::int32_t target, Softmax s, float scale, std::int64_t width) {
  const float factor = scale / s.sum;
  const float at_target = scale * (std::exp(get(row[target]) - s.top) / s.sum - 1.0F);
  in_eights(width, [=](std::int64_t i, auto lanes) {
    store(row + i, factor * fast_exp<false>(load(row + i, lanes) - s.top), lanes);
  });
  put(row[target], at_target);
}

template <class PerRow>
double sum_rows(std::int64_t count, const PerRow& per_row) {
  std::vector<double> losses(static_cast<std::size_t>(count));
  parallel(count, [&](std::int64_t n) { losses[static_cast<std::size_t>(n)] = per_row(n); });
  double sum = 0;
  for (const double loss : losses) sum += loss;
  return sum;
}

}  // namespace

double cross_entropy(const at::Tensor& logits, const at::Tensor& targets) {
  expect_targets(logits, targets);
  const auto* target = targets.const_data_ptr<std::int32_t>();
  return with_type(logits, [&]<class T>(T) {
    const auto matrix = rows<T>(logits);
    return sum_rows(matrix.count, [=](std::int64_t n) {
      if (target[n] < 0) return 0.0;
      return softmax(matrix[n], matrix.width).loss(get(matrix[n][target[n]]));
    });
  });
}

double cross_entropy_backward(const at::Tensor& logits, const at::Tensor& targets, double scale) {
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
      const Softmax s = softmax(row, matrix.width);
      const double loss = s.loss(get(row[target[n]]));
      gradient_row(row, target[n], s, static_cast<float>(scale), matrix.width);
      return loss;
    });
  });
}

}  // namespace trireme::kernels
