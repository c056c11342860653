// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cfloat>

#include "kernels/cuda/block.cuh"

/// Shared by kernels of the loss: a row's softmax in one pass over its logits, and the logits' gradient.
namespace trireme::kernels::cuda {

/// a: the largest so far, never below the least finite number, so that differences are never NaN by themselves;
/// b: the sum of exp(x - a).
struct Join {
  __device__ Two operator()(Two x, Two y) const {
    const float top = fmaxf(x.a, y.a);
    return {top, x.b * expf(x.a - top) + y.b * expf(y.a - top)};
  }
};

/// s and some more values.
template <int n, int packs, class T>
__device__ Two joined(Two s, const Pack<T, n> (&x)[packs]) {
  float top = s.a;
  for (int p = 0; p < packs; ++p)
    for (int k = 0; k < n; ++k) top = fmaxf(top, static_cast<float>(x[p].at[k]));
  float sum = s.b * exponential<T>(s.a - top);
  for (int p = 0; p < packs; ++p)
    for (int k = 0; k < n; ++k) sum += exponential<T>(static_cast<float>(x[p].at[k]) - top);
  return {top, sum};
}

/// Converts a row's logits into their gradient, scale * (softmax * (1 + 2 * z_loss * logsumexp) - onehot).
struct Turn {
  float top, factor, of_target;
  std::int64_t column;  ///< the target's; may be outside the row

  __device__ Turn(Two s, float logit, float scale, float z_loss, std::int64_t target) : top(s.a), column(target) {
    const float weight = 1.0F + 2.0F * z_loss * (s.a + logf(s.b));  // exactly 1 without z-loss
    factor = scale * weight / s.b;
    of_target = scale * (weight * (expf(logit - s.a) / s.b) - 1.0F);
  }
  template <int n, class T>
  __device__ Pack<T, n> operator()(Pack<T, n> x) const {  // as if the target were elsewhere
    for (int k = 0; k < n; ++k) x.at[k] = static_cast<T>(factor * exponential<T>(static_cast<float>(x.at[k]) - top));
    return x;
  }
  /// By the thread that wrote the pack with it, after that: no other element has to be compared.
  template <int n, class T>
  __device__ void put_target(T* row, std::int64_t width) const {
    if (column >= 0 && column < width && column / n % blockDim.x == threadIdx.x)
      row[column] = static_cast<T>(of_target);
  }
};

/// The losses of tokens, [2, tokens]: cross-entropy, then z-loss.
struct Losses {
  double* at;
  std::int64_t tokens;
  __device__ void put(std::int64_t token, double sum, double logit, double top, double z_loss) const {
    const double log_z = top + log(sum);
    at[token] = log(sum) - (logit - top);
    at[tokens + token] = z_loss * log_z * log_z;
  }
  __device__ void put_none(std::int64_t token) const { at[token] = at[tokens + token] = 0; }
};

}  // namespace trireme::kernels::cuda
