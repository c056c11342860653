// SPDX-License-Identifier: Apache-2.0
#include "nn/head.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "nn/common.hpp"
#include "trireme/base/error.hpp"
#include "trireme/kernels/cross_entropy.hpp"
#include "trireme/kernels/gemm.hpp"
#include "trireme/model/logits.hpp"

namespace trireme::nn {

std::int64_t chosen_chunk(std::int64_t vocab, at::Device device) {
  if (device.is_cuda()) return model::gpu_logits_tokens(vocab);
  // Fewer tokens would keep the logits in a smaller cache, but read the weight and its gradient from memory more often:
  // at vocabulary 32000 and hidden 512 chunks of 512 are as fast as 256 in fp32, 5% faster in bf16, and 128 is slower
  // in both.
  constexpr std::int64_t cache_bytes = 64 << 20;
  return std::max<std::int64_t>(256, cache_bytes / (vocab * size_of(DType::fp32)) / 64 * 64);
}

namespace {

/// The logits [B, vocab] fp32 of the last position of each of the B rows of x [B*T, D].
at::Tensor last_logits(const at::Tensor& x, std::span<const at::Tensor> parameters, const Norm& norm,
                       const LogitScale& scale, const Microbatch& microbatch) {
  const at::Tensor last =
      x.view({microbatch.batch, microbatch.seq_len, x.size(1)}).select(1, microbatch.seq_len - 1).contiguous();
  const at::Tensor logits = kernels::linear_wide(norm.forward(last, parameters).h, parameters.back());
  scale.apply(logits);
  return logits.to(at::kFloat);
}

/// Sum of the losses of chunks: on a device it stays there, without a wait of the host.
class LossSum {
 public:
  explicit LossSum(const at::Tensor& x) {
    if (x.is_cuda()) device_ = at::zeros({2}, x.options().dtype(at::kDouble));
  }
  void add(const at::Tensor& logits, const at::Tensor& targets) {
    if (device_.defined()) return kernels::add_cross_entropy(logits, targets, device_);
    host_ += {.cross_entropy = kernels::cross_entropy(logits, targets)};
  }
  /// Turns the logits into their gradient.
  void add_backward(const at::Tensor& logits, const at::Tensor& targets, double scale, double z_loss) {
    if (device_.defined()) return kernels::add_cross_entropy_backward(logits, targets, scale, z_loss, device_);
    host_ += kernels::cross_entropy_backward(logits, targets, scale, z_loss);
  }
  [[nodiscard]] Result result() const { return {.hidden = {}, .loss = host_, .device_loss = device_}; }

 private:
  kernels::LossSums host_;
  at::Tensor device_;
};

}  // namespace

Head::Head(const model::Sizes& sizes, std::int64_t chunk_tokens, at::Device device)
    : hidden_(sizes.hidden),
      norm_(sizes),
      scale_(sizes.decoder),
      chunk_tokens_(chunk_tokens > 0 ? chunk_tokens : chosen_chunk(sizes.vocab, device)) {}

Result Head::forward(at::Tensor hidden, std::span<const at::Tensor> parameters, const Microbatch& microbatch, Mode mode,
                     Saved& saved) const {
  const PlainOperators guard;
  expect_call(hidden, microbatch, hidden_, parameters.size(), norm_.parameters() + 1);
  if (saves(mode)) {
    saved.tensors = {std::move(hidden)};
    return {};
  }
  if (mode == Mode::infer) return {.hidden = last_logits(hidden, parameters, norm_, scale_, microbatch)};

  const at::Tensor h = norm_.forward(hidden, parameters).h;
  LossSum loss(h);
  for (std::int64_t begin = 0; begin < h.size(0); begin += chunk_tokens_) {
    const std::int64_t end = std::min(h.size(0), begin + chunk_tokens_);
    const at::Tensor logits = kernels::linear_wide(h.slice(0, begin, end), parameters.back());
    scale_.apply(logits);
    loss.add(logits, microbatch.targets.slice(0, begin, end));
  }
  return loss.result();
}

Result Head::backward(at::Tensor /*d_hidden*/, std::span<const at::Tensor> parameters, std::span<const Grad> grads,
                      const Microbatch& microbatch, Saved saved) const {
  const PlainOperators guard;
  const at::Tensor& x = saved.tensors[0];
  expect_call(x, microbatch, hidden_, grads.size(), norm_.parameters() + 1);
  const auto [h, statistics] = norm_.forward(x, parameters);
  const at::Tensor& projection = parameters.back();
  const Grad& grad = grads.back();
  at::Tensor d_h = at::empty_like(x);
  LossSum loss(x);
  for (std::int64_t begin = 0; begin < h.size(0); begin += chunk_tokens_) {
    const std::int64_t end = std::min(h.size(0), begin + chunk_tokens_);
    const at::Tensor chunk = h.slice(0, begin, end);
    const at::Tensor logits = kernels::linear_wide(chunk, projection);
    scale_.apply(logits);
    const at::Tensor slope = scale_.slope(logits);
    loss.add_backward(logits, microbatch.targets.slice(0, begin, end), microbatch.loss_scale, microbatch.z_loss);
    scale_.backward(logits, slope);
    kernels::linear_backward_weight(logits, chunk, {.tensor = grad.tensor, .accumulate = grad.accumulate || begin > 0});
    d_h.slice(0, begin, end).copy_(kernels::linear_backward_input(logits, projection));
  }
  Result result = loss.result();
  result.hidden = norm_.backward(d_h, x, parameters, statistics, {}, grads);
  return result;
}

}  // namespace trireme::nn
