// SPDX-License-Identifier: Apache-2.0
// The final norm, the logits and their loss.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "nn/codes.hpp"
#include "trireme/kernels/cross_entropy.hpp"
#include "trireme/kernels/gemm.hpp"
#include "trireme/kernels/vocabulary.hpp"
#include "trireme/model/logits.hpp"

namespace trireme::nn {

namespace {

/// Tokens whose logits exist at once where the run file has no value: on the host as many as keep the logits within 64
/// MiB of fp32, at least 256; on a device within 1 GiB of bf16, at least 1024.
std::int64_t chosen_chunk(std::int64_t vocab, at::Device device) {
  if (device.is_cuda()) return model::gpu_logits_tokens(vocab);
  // Fewer tokens would keep the logits in a smaller cache, but read the weight and its gradient from memory more often:
  // at vocabulary 32000 and hidden 512 chunks of 512 are as fast as 256 in fp32, 5% faster in bf16, and 128 is slower
  // in both.
  constexpr std::int64_t cache_bytes = 64 << 20;
  return std::max<std::int64_t>(256, cache_bytes / (vocab * size_of(DType::fp32)) / 64 * 64);
}

/// Computation between the products of the head and its logits: a divisor, then a softcap c = cap tanh(x / cap).
class LogitScale {
 public:
  explicit LogitScale(const model::Decoder& decoder) : divisor_(decoder.logit_divisor), cap_(decoder.logit_softcap) {}

  /// In place.
  void apply(const at::Tensor& logits) const {
    if (divisor_ != 1) logits.div_(divisor_);
    if (cap_ > 0) logits.div_(cap_).tanh_().mul_(cap_);
  }
  /// The slope of the softcap, shaped as `logits`, which `apply` gave: call it before they become their own
  /// gradient. Undefined without a softcap.
  [[nodiscard]] at::Tensor slope(const at::Tensor& logits) const {
    return cap_ > 0 ? logits.div(cap_).square_().neg_().add_(1) : at::Tensor();
  }
  /// Turns the gradient by the logits, in place, into that by the products.
  void backward(const at::Tensor& d_logits, const at::Tensor& slope) const {
    if (slope.defined()) d_logits.mul_(slope);
    if (divisor_ != 1) d_logits.div_(divisor_);
  }

 private:
  double divisor_, cap_;
};

/// The last position of each of the rows of x [B*T, D].
at::Tensor last_positions(const at::Tensor& x, const Microbatch& m) {
  return x.view({m.batch, m.seq_len, x.size(1)}).select(1, m.seq_len - 1).contiguous();
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
  void put(Losses& losses) const {
    losses.head += host_;
    losses.head_on_device = device_;
  }

 private:
  kernels::LossSums host_;
  at::Tensor device_;
};

/// Final norm, logits, softmax cross-entropy. Parameters: {norm..., lm_head [vocab, D]} (tied: embed_tokens). The
/// logits of one chunk of tokens exist at a time: computed, turned into their own gradient in place and consumed, all
/// in backward. So in training forward only keeps x; backward computes the loss.
class HeadCode final : public StageCode {
 public:
  HeadCode(const model::Sizes& sizes, std::int64_t chunk_tokens, at::Device device)
      : norm_(sizes),
        scale_(sizes.decoder),
        chunk_tokens_(chunk_tokens > 0 ? chunk_tokens : chosen_chunk(sizes.vocab, device)) {}

  void forward(StageFrame& f) const override {
    at::Tensor hidden = f.take(residual);
    if (saves(f.mode)) {
      f.kept[x] = std::move(hidden);
      return;
    }
    if (f.mode == Mode::infer) {
      const at::Tensor h = norm_.forward(last_positions(hidden, f.batch), f.parameters).h;
      const at::Tensor logits = kernels::linear_wide(h, f.parameters.back());
      scale_.apply(logits);
      f[residual] = logits.to(at::kFloat);
      return;
    }
    const at::Tensor h = norm_.forward(hidden, f.parameters).h;
    LossSum loss(h);
    for (std::int64_t begin = 0; begin < h.size(0); begin += chunk_tokens_) {
      const std::int64_t end = std::min(h.size(0), begin + chunk_tokens_);
      const at::Tensor logits = kernels::linear_wide(h.slice(0, begin, end), f.parameters.back());
      scale_.apply(logits);
      loss.add(logits, f.batch.targets.slice(0, begin, end));
    }
    loss.put(f.losses);
  }

  void backward(StageFrame& f) const override {
    const Microbatch& m = f.batch;
    const auto [h, statistics] = norm_.forward(f.kept[x], f.parameters);
    const at::Tensor& projection = f.parameters.back();
    const Grad& grad = f.gradients.back();
    at::Tensor d_h = at::empty_like(f.kept[x]);
    LossSum loss(d_h);
    for (std::int64_t begin = 0; begin < h.size(0); begin += chunk_tokens_) {
      const std::int64_t end = std::min(h.size(0), begin + chunk_tokens_);
      const at::Tensor chunk = h.slice(0, begin, end);
      const at::Tensor logits = kernels::linear_wide(chunk, projection);
      scale_.apply(logits);
      const at::Tensor slope = scale_.slope(logits);
      loss.add_backward(logits, m.targets.slice(0, begin, end), m.loss_scale, m.z_loss);
      scale_.backward(logits, slope);
      kernels::linear_backward_weight(logits, chunk,
                                      {.tensor = grad.tensor, .accumulate = grad.accumulate || begin > 0});
      d_h.slice(0, begin, end).copy_(kernels::linear_backward_input(logits, projection));
    }
    loss.put(f.losses);
    f[residual] = norm_.backward(d_h, f.kept[x], f.parameters, statistics, {}, f.gradients);
  }

 private:
  Norm norm_;
  LogitScale scale_;
  std::int64_t chunk_tokens_;
};

/// Logits and loss of this rank's part of the vocabulary; the logits of one chunk of tokens exist at a time. Between
/// forward and backward all ranks need every token's maximum and sum: the first chunk is kept until then, the others
/// are recomputed. A single chunk needs no recompute.
class LogitsCode final : public StageCode {
 public:
  LogitsCode(const model::Model& model, std::int64_t chunk_tokens, at::Device device)
      : scale_(model.sizes.decoder),
        part_(model::vocabulary_part(model.sizes.vocab, model.part)),
        padded_((model.sizes.vocab + model.part.ranks - 1) / model.part.ranks),
        chunk_tokens_(chunk_tokens > 0 ? chunk_tokens : chosen_chunk(padded_, device)) {}

  /// Writes statistics [N, 3] fp32 (kernels::vocabulary_statistics); in infer the logits of each row's last position,
  /// [B, ceil(vocab / ranks)] fp32.
  void forward(StageFrame& f) const override {
    f[residual].reset();
    const at::Tensor& h = f[normed];
    const at::Tensor projection = f.parameters[0].narrow(0, 0, part_.count);
    const auto fp32 = h.options().dtype(at::kFloat);
    at::Tensor& first_logits = f[logits];
    if (f.mode == Mode::infer) {
      const at::Tensor held = kernels::linear_wide(last_positions(h, f.batch), projection);
      scale_.apply(held);
      f[vocabulary] = at::zeros({f.batch.batch, padded_}, fp32);
      f[vocabulary].slice(1, 0, part_.count).copy_(held);
      return f[normed].reset();
    }
    const at::Tensor statistics = f[vocabulary] = at::empty({h.size(0), 3}, fp32);
    // In reverse order, because backward begins with the chunk that remains at the end.
    for (std::int64_t begin = (h.size(0) - 1) / chunk_tokens_ * chunk_tokens_; begin >= 0; begin -= chunk_tokens_) {
      const std::int64_t end = std::min(h.size(0), begin + chunk_tokens_);
      first_logits.reset();
      first_logits = kernels::linear_wide(h.slice(0, begin, end), projection);
      scale_.apply(first_logits);
      kernels::vocabulary_statistics(first_logits, f.batch.targets.slice(0, begin, end), part_.first,
                                     statistics.slice(0, begin, end));
    }
    if (saves(f.mode)) return;
    first_logits.reset();
    f[normed].reset();
  }

  /// Writes this rank's term of the gradient by h. vocabulary: [N, 2] of kernels::combine_statistics.
  void backward(StageFrame& f) const override {
    const auto take = [&](model::TensorId id) { return f.take({id, schedule::Phase::forward}); };
    const at::Tensor h = take(normed), softmax = take(vocabulary);
    at::Tensor first_logits = take(logits);
    const at::Tensor projection = f.parameters[0].narrow(0, 0, part_.count);
    const at::Tensor grad = f.gradients[0].tensor.narrow(0, 0, part_.count);
    at::Tensor d_h = at::empty_like(h);
    for (std::int64_t begin = 0; begin < h.size(0); begin += chunk_tokens_) {
      const std::int64_t end = std::min(h.size(0), begin + chunk_tokens_);
      const at::Tensor chunk = h.slice(0, begin, end);
      const at::Tensor of_chunk =
          begin == 0 ? std::exchange(first_logits, at::Tensor()) : kernels::linear_wide(chunk, projection);
      if (begin > 0) scale_.apply(of_chunk);
      const at::Tensor slope = scale_.slope(of_chunk);
      kernels::cross_entropy_gradient_part(of_chunk, f.batch.targets.slice(0, begin, end), part_.first,
                                           softmax.slice(0, begin, end), f.batch.loss_scale, f.batch.z_loss);
      scale_.backward(of_chunk, slope);
      kernels::linear_backward_weight(of_chunk, chunk,
                                      {.tensor = grad, .accumulate = f.gradients[0].accumulate || begin > 0});
      d_h.slice(0, begin, end).copy_(kernels::linear_backward_input(of_chunk, projection));
    }
    f[normed] = d_h;
  }

 private:
  LogitScale scale_;
  model::VocabularyPart part_;
  std::int64_t padded_;
  std::int64_t chunk_tokens_;
};

}  // namespace

std::unique_ptr<StageCode> make_head_code(const model::Model& model, const model::Stage& stage,
                                          std::int64_t chunk_tokens, at::Device device) {
  if (stage.kind == model::StageKind::head) return std::make_unique<HeadCode>(model.held, chunk_tokens, device);
  return std::make_unique<LogitsCode>(model, chunk_tokens, device);
}

}  // namespace trireme::nn
