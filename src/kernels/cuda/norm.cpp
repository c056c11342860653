// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <utility>

#include "kernels/cuda.hpp"
#include "kernels/cuda/launchers.hpp"
#include "kernels/cuda/tensors.hpp"

namespace trireme::kernels::cuda {
namespace {

/// statistics: [N], or [2, N] with a bias.
void forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps, const at::Tensor& y,
             const at::Tensor& statistics, bool again, float offset = 0) {
  with_type(x, [&]<class T>(T) {
    auto* known = data<float>(statistics);
    norm_forward(NormForward<T>{.x = matrix<const T>(x),
                                .weight = data<const T>(weight),
                                .bias = bias.defined() ? data<const T>(bias) : nullptr,
                                .eps = static_cast<float>(eps),
                                .y = matrix<T>(y),
                                .mean = bias.defined() ? known : nullptr,
                                .rstd = bias.defined() ? known + x.size(0) : known,
                                .again = again,
                                .offset = offset});
  });
}

/// d_bias: null for RMSNorm.
void backward(const at::Tensor& d_y, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& statistics,
              const at::Tensor& d_residual, const at::Tensor& d_x, const Grad& d_weight, const Grad* d_bias,
              float offset = 0) {
  const std::int64_t rows = x.size(0), width = x.size(1);
  if (width > widest_norm())
    throw ConfigError(fmt::format("the norms' device kernels take a hidden size of up to {}, and this model's is {}",
                                  widest_norm(), width));
  const std::int64_t stride = width * (d_bias != nullptr ? 2 : 1);
  const at::Tensor workspace = at::empty({norm_chunks(rows), stride}, x.options().dtype(at::kFloat));
  auto* partial = data<float>(workspace);
  std::int64_t chunks = 0;
  with_type(x, [&]<class T>(T) {
    const auto* known = data<const float>(statistics);
    const NormBackward<T> arguments{.d_y = matrix<const T>(d_y),
                                    .x = matrix<const T>(x),
                                    .weight = data<const T>(weight),
                                    .mean = d_bias != nullptr ? known : nullptr,
                                    .rstd = d_bias != nullptr ? known + rows : known,
                                    .residual = matrix<const T>(d_residual),
                                    .d_x = matrix<T>(d_x),
                                    .partial = partial,
                                    .offset = offset};
    chunks = norm_backward(arguments);
  });
  sum_chunks(partial, chunks, stride, width, data<float>(d_weight.tensor), d_weight.accumulate);
  if (d_bias != nullptr)
    sum_chunks(partial + width, chunks, stride, width, data<float>(d_bias->tensor), d_bias->accumulate);
}

}  // namespace

void rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, const at::Tensor& y, const at::Tensor& rstd,
              float offset) {
  forward(x, weight, {}, eps, y, rstd, false, offset);
}

void rms_norm_again(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd, const at::Tensor& y,
                    float offset) {
  forward(x, weight, {}, 0, y, rstd, true, offset);
}

void rms_norm_backward(const at::Tensor& d_y, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd,
                       const at::Tensor& d_residual, const at::Tensor& d_x, const Grad& d_weight, float offset) {
  backward(d_y, x, weight, rstd, d_residual, d_x, d_weight, nullptr, offset);
}

bool rms_norm_heads(const at::Tensor& x, const HeadNorms& norms, double eps, const at::Tensor& y,
                    const at::Tensor& rstd, bool again) {
  bool done = false;
  with_type(x, [&]<class T>(T) {
    done = head_norm_forward(HeadNorm<T>{.x = matrix<const T>(x),
                                         .q_weight = data<const T>(norms.q_weight),
                                         .k_weight = data<const T>(norms.k_weight),
                                         .eps = static_cast<float>(eps),
                                         .offset = norms.offset,
                                         .y = matrix<T>(y),
                                         .rstd = data<float>(rstd),
                                         .again = again,
                                         .q_heads = norms.q_heads,
                                         .heads = rstd.size(0),
                                         .head_dim = norms.head_dim});
  });
  return done;
}

bool rms_norm_heads_backward(const at::Tensor& d_y, const at::Tensor& x, const HeadNorms& norms, const at::Tensor& rstd,
                             const at::Tensor& d_x, const Grad& d_q_weight, const Grad& d_k_weight) {
  const at::Tensor workspace = at::empty({2, head_norm_chunks, norms.head_dim}, x.options().dtype(at::kFloat));
  auto* const partial = data<float>(workspace);
  bool done = false;
  with_type(x, [&]<class T>(T) {
    done = head_norm_backward(HeadNormBackward<T>{.d_y = matrix<const T>(d_y),
                                                  .x = matrix<const T>(x),
                                                  .q_weight = data<const T>(norms.q_weight),
                                                  .k_weight = data<const T>(norms.k_weight),
                                                  .offset = norms.offset,
                                                  .rstd = data<const float>(rstd),
                                                  .d_x = matrix<T>(d_x),
                                                  .partial = partial,
                                                  .q_heads = norms.q_heads,
                                                  .heads = rstd.size(0),
                                                  .head_dim = norms.head_dim});
  });
  if (!done) return false;
  const std::int64_t width = norms.head_dim;
  for (const auto& [part, grad] : {std::pair{partial, &d_q_weight}, {partial + head_norm_chunks * width, &d_k_weight}})
    sum_chunks(part, head_norm_chunks, width, width, data<float>(grad->tensor), grad->accumulate);
  return true;
}

void layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps, const at::Tensor& y,
                const at::Tensor& statistics) {
  forward(x, weight, bias, eps, y, statistics, false);
}

void layer_norm_again(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      const at::Tensor& statistics, const at::Tensor& y) {
  forward(x, weight, bias, 0, y, statistics, true);
}

void layer_norm_backward(const at::Tensor& d_y, const at::Tensor& x, const at::Tensor& weight,
                         const at::Tensor& statistics, const at::Tensor& d_residual, const at::Tensor& d_x,
                         const Grad& d_weight, const Grad& d_bias) {
  backward(d_y, x, weight, statistics, d_residual, d_x, d_weight, &d_bias);
}

}  // namespace trireme::kernels::cuda
