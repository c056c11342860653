// SPDX-License-Identifier: Apache-2.0
#include "trireme/nn/qk_norm.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "nn/common.hpp"
#include "trireme/kernels/rms_norm.hpp"
#include "trireme/kernels/split_rms_norm.hpp"
#include "trireme/nn/norm.hpp"

namespace trireme::nn {
namespace {

model::Sizes without_norm_of_heads(model::Sizes sizes) {
  sizes.decoder.qk_norm = model::QkNorm::none;
  return sizes;
}

/// The columns of queries and those of keys.
std::array<at::Tensor, 2> queries_and_keys_of(const at::Tensor& qk, const model::Sizes& sizes) {
  const std::int64_t q_width = sizes.heads * sizes.head_dim;
  return {qk.slice(1, 0, q_width), qk.slice(1, q_width, q_width + sizes.kv_heads * sizes.head_dim)};
}

}  // namespace

QkNorm::QkNorm(const model::Sizes& sizes, const model::Sizes& whole, std::int64_t copies, const model::Stage& stage,
               std::int64_t seq_len, const model::ContextPart& part, at::Device device)
    : sizes_(sizes),
      offset_(sizes.decoder.norm == model::NormKind::rms_plus_one ? 1 : 0),
      widths_{static_cast<double>(whole.heads * whole.head_dim),
              static_cast<double>(copies * whole.kv_heads * whole.head_dim)},
      turn_(without_norm_of_heads(sizes), stage, Slots(stage.kind, sizes.decoder), seq_len, part, device) {}

at::Tensor QkNorm::sums_of_squares(const at::Tensor& qkv) const {
  at::Tensor sums = at::empty({2, qkv.size(0)}, qkv.options().dtype(at::kFloat));
  const auto parts = queries_and_keys_of(qkv, sizes_);
  for (const std::size_t i : {0U, 1U}) kernels::row_squares(parts.at(i), sums.select(0, static_cast<std::int64_t>(i)));
  return sums;
}

at::Tensor QkNorm::forward(const at::Tensor& qkv, const at::Tensor& sums, std::span<const at::Tensor> parameters,
                           const Microbatch& microbatch, Mode mode, std::vector<at::Tensor>& saved) const {
  const at::Tensor qk = ProjectedParts(qkv, sizes_).qk;
  at::Tensor raw = qk;
  if (saves(mode)) raw = at::empty({qk.size(0), qk.size(1)}, qk.options()).copy_(qk);
  const at::Tensor rstd = at::empty_like(sums);
  const auto from = queries_and_keys_of(raw, sizes_), to = queries_and_keys_of(qk, sizes_);
  for (const std::size_t i : {0U, 1U}) {
    rstd.select(0, static_cast<std::int64_t>(i))
        .copy_(sums.select(0, static_cast<std::int64_t>(i)))
        .div_(widths_.at(i))
        .add_(sizes_.norm_eps)
        .rsqrt_();
    kernels::rms_norm_again(from.at(i), parameters[i], rstd.select(0, static_cast<std::int64_t>(i)), to.at(i), offset_);
  }
  (void)turn_.prepare(qk, parameters, microbatch, {}, false);
  if (saves(mode)) saved.insert(saved.end(), {raw, rstd});
  return qkv;
}

at::Tensor QkNorm::backward_input(const at::Tensor& d_qkv, std::span<const at::Tensor> parameters,
                                  const Microbatch& microbatch, std::vector<at::Tensor>& saved) const {
  const at::Tensor d_qk = ProjectedParts(d_qkv, sizes_).qk, raw = saved[0], rstd = saved[1];
  (void)turn_.backward(d_qk, {}, parameters, microbatch, {});
  at::Tensor sums = at::empty_like(rstd);
  const auto d = queries_and_keys_of(d_qk, sizes_), x = queries_and_keys_of(raw, sizes_);
  for (const std::size_t i : {0U, 1U}) {
    saved.push_back(at::empty({x.at(i).size(1)}, rstd.options()));
    kernels::split_rms_norm_backward(d.at(i), x.at(i), parameters[i], rstd.select(0, static_cast<std::int64_t>(i)),
                                     widths_.at(i), d.at(i), sums.select(0, static_cast<std::int64_t>(i)),
                                     {.tensor = saved.back(), .accumulate = false}, offset_);
  }
  return sums;
}

void QkNorm::finish_backward(const at::Tensor& d_qkv, const at::Tensor& sums,
                             const std::vector<at::Tensor>& saved) const {
  const auto d = queries_and_keys_of(d_qkv, sizes_), x = queries_and_keys_of(saved[0], sizes_);
  for (const std::size_t i : {0U, 1U})
    kernels::subtract_scaled_rows(x.at(i), sums.select(0, static_cast<std::int64_t>(i)), d.at(i));
}

void QkNorm::backward_weight(std::span<const Grad> grads, const std::vector<at::Tensor>& saved) const {
  put_gradients(std::span(saved).subspan(2), grads);
}

}  // namespace trireme::nn
