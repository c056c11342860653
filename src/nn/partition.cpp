// SPDX-License-Identifier: Apache-2.0
#include "trireme/nn/partition.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "nn/codes.hpp"
#include "nn/common.hpp"
#include "nn/embedding.hpp"
#include "nn/head.hpp"
#include "nn/logits.hpp"
#include "nn/positions.hpp"
#include "trireme/base/error.hpp"
#include "trireme/kernels/gemm.hpp"
#include "trireme/kernels/vocabulary.hpp"

namespace trireme::nn {

at::Tensor VocabularyEmbedding::forward(std::span<const at::Tensor> parameters, const Microbatch& microbatch) const {
  const PlainOperators guard;
  const at::Tensor table = parameters[0].narrow(0, 0, part_.count);
  at::Tensor out = at::empty({microbatch.inputs.size(0), table.size(1)}, table.options());
  kernels::embedding_gather_part(microbatch.inputs, part_.first, table, out);
  EmbeddingScale(sizes_.decoder, sizes_.hidden).apply(out);
  return out;
}

void VocabularyEmbedding::backward(const at::Tensor& d_out, std::span<const Grad> grads,
                                   const Microbatch& microbatch) const {
  const PlainOperators guard;
  kernels::embedding_scatter_add_part(
      microbatch.inputs, part_.first, EmbeddingScale(sizes_.decoder, sizes_.hidden).backward(d_out),
      {.tensor = grads[0].tensor.narrow(0, 0, part_.count), .accumulate = grads[0].accumulate});
}

VocabularyHead::VocabularyHead(const model::Sizes& sizes, model::VocabularyPart part, int ranks,
                               std::int64_t chunk_tokens, at::Device device)
    : decoder_(sizes.decoder),
      part_(part),
      padded_((sizes.vocab + ranks - 1) / ranks),
      chunk_tokens_(chunk_tokens > 0 ? chunk_tokens : chosen_chunk(padded_, device)) {}

at::Tensor VocabularyHead::forward(const at::Tensor& h, std::span<const at::Tensor> parameters,
                                   const Microbatch& microbatch, Mode mode, at::Tensor& first_logits) const {
  const PlainOperators guard;
  const at::Tensor projection = parameters[0].narrow(0, 0, part_.count);
  const auto fp32 = h.options().dtype(at::kFloat);
  if (mode == Mode::infer) {
    const at::Tensor last =
        h.view({microbatch.batch, microbatch.seq_len, h.size(1)}).select(1, microbatch.seq_len - 1).contiguous();
    const at::Tensor held = kernels::linear_wide(last, projection);
    LogitScale(decoder_).apply(held);
    at::Tensor logits = at::zeros({microbatch.batch, padded_}, fp32);
    logits.slice(1, 0, part_.count).copy_(held);
    return logits;
  }
  at::Tensor statistics = at::empty({h.size(0), 3}, fp32);
  // In reverse order, because backward begins with the chunk that remains at the end.
  for (std::int64_t begin = (h.size(0) - 1) / chunk_tokens_ * chunk_tokens_; begin >= 0; begin -= chunk_tokens_) {
    const std::int64_t end = std::min(h.size(0), begin + chunk_tokens_);
    first_logits.reset();
    first_logits = kernels::linear_wide(h.slice(0, begin, end), projection);
    LogitScale(decoder_).apply(first_logits);
    kernels::vocabulary_statistics(first_logits, microbatch.targets.slice(0, begin, end), part_.first,
                                   statistics.slice(0, begin, end));
  }
  if (!saves(mode)) first_logits.reset();
  return statistics;
}

at::Tensor VocabularyHead::backward(const at::Tensor& h, const at::Tensor& softmax,
                                    std::span<const at::Tensor> parameters, std::span<const Grad> grads,
                                    const Microbatch& microbatch, at::Tensor first_logits) const {
  const PlainOperators guard;
  const at::Tensor projection = parameters[0].narrow(0, 0, part_.count);
  const at::Tensor grad = grads[0].tensor.narrow(0, 0, part_.count);
  at::Tensor d_h = at::empty_like(h);
  for (std::int64_t begin = 0; begin < h.size(0); begin += chunk_tokens_) {
    const std::int64_t end = std::min(h.size(0), begin + chunk_tokens_);
    const at::Tensor chunk = h.slice(0, begin, end);
    const at::Tensor logits =
        begin == 0 ? std::exchange(first_logits, at::Tensor()) : kernels::linear_wide(chunk, projection);
    const LogitScale scale(decoder_);
    if (begin > 0) scale.apply(logits);
    const at::Tensor slope = scale.slope(logits);
    kernels::cross_entropy_gradient_part(logits, microbatch.targets.slice(0, begin, end), part_.first,
                                         softmax.slice(0, begin, end), microbatch.loss_scale, microbatch.z_loss);
    scale.backward(logits, slope);
    kernels::linear_backward_weight(logits, chunk, {.tensor = grad, .accumulate = grads[0].accumulate || begin > 0});
    d_h.slice(0, begin, end).copy_(kernels::linear_backward_input(logits, projection));
  }
  return d_h;
}

namespace {

/// The embedding, of a part of the vocabulary where ranks share it.
class EmbeddingCode final : public StageCode {
 public:
  EmbeddingCode(const model::Model& model, const model::Stage& stage)
      : embedding_(model.sizes, model::vocabulary_part(model.sizes.vocab, model.part)),
        upstream_(model::upstream_of(stage)) {}
  void forward(StageFrame& f) const override {
    f[residual].reset();
    f[branch_output] = embedding_.forward(f.parameters, f.batch);
  }
  void backward(StageFrame& f) const override {
    embedding_.backward(f.upstream(upstream_), f.gradients, f.batch);
    f.free(residual);
  }

 private:
  VocabularyEmbedding embedding_;
  model::TensorId upstream_;
};

class LogitsCode final : public StageCode {
 public:
  LogitsCode(const model::Model& model, std::int64_t chunk_tokens, at::Device device)
      : head_(model.sizes, model::vocabulary_part(model.sizes.vocab, model.part), model.part.ranks, chunk_tokens,
              device) {}
  void forward(StageFrame& f) const override {
    f[residual].reset();
    f[vocabulary] = head_.forward(f[normed], f.parameters, f.batch, f.mode, f[logits]);
    if (!saves(f.mode)) f[normed].reset();
  }
  void backward(StageFrame& f) const override {
    const auto take = [&](model::TensorId id) { return f.take({id, schedule::Phase::forward}); };
    const at::Tensor h = take(normed), softmax = take(vocabulary);
    f[normed] = head_.backward(h, softmax, f.parameters, f.gradients, f.batch, take(logits));
  }

 private:
  VocabularyHead head_;
};

std::unique_ptr<StageCode> make_code(const model::Model& model, const model::Stage& stage, std::int64_t seq_len,
                                     std::int64_t loss_chunk_tokens, at::Device device) {
  using model::StageKind;
  switch (stage.kind) {
    case StageKind::norm: return std::make_unique<NormCode>(model.sizes);
    case StageKind::post_norm: return std::make_unique<PostNormCode>(model.sizes);
    case StageKind::input: return std::make_unique<InputCode>();
    case StageKind::embedding: return std::make_unique<EmbeddingCode>(model, stage);
    case StageKind::logits: return std::make_unique<LogitsCode>(model, loss_chunk_tokens, device);
    case StageKind::mlp_branch:
      return std::make_unique<MlpCode>(model.sizes.decoder, model.part.rank == 0, stage.fp8,
                                       Output{model::result_of(stage), model::upstream_of(stage)});
    default: return make_attention_code(model, stage, seq_len, device);
  }
}

}  // namespace

Layer make_layer(const model::Model& model, const model::Stage& stage, std::int64_t max_seq_len, DType compute,
                 std::int64_t loss_chunk_tokens, at::Device device) {
  using model::StageKind;
  const model::TensorPart& part = model.part;
  Layer layer;
  if (stage.kind == StageKind::positions) {
    layer.whole = std::make_unique<Positions>(part.sequence_parallel ? part.rank : 0, part.context);
  } else if (!model::is_partitioned(stage)) {
    layer.whole = make_stage(stage, model.held, max_seq_len, compute, loss_chunk_tokens, device);
  } else if (stage.kind == StageKind::route) {
    layer.route.emplace(model.sizes, stage.fp8);
  } else if (stage.kind == StageKind::experts) {
    layer.experts.emplace(model.sizes, part.experts, stage.fp8);
  } else if (stage.kind != StageKind::merge) {  // which is a kernel, without parameters
    layer.code = make_code(model, stage, max_seq_len, loss_chunk_tokens, device);
    layer.kept = model::kept_tensors(stage.kind, model.held);
  }
  return layer;
}

}  // namespace trireme::nn
