// SPDX-License-Identifier: Apache-2.0
#include "trireme/nn/partition.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "nn/common.hpp"
#include "nn/embedding.hpp"
#include "nn/head.hpp"
#include "nn/logits.hpp"
#include "nn/positions.hpp"
#include "trireme/base/error.hpp"
#include "trireme/kernels/gemm.hpp"
#include "trireme/kernels/vocabulary.hpp"

namespace trireme::nn {

at::Tensor NormStage::forward(const at::Tensor& x, std::span<const at::Tensor> parameters, Mode mode,
                              Saved& saved) const {
  const PlainOperators guard;
  auto [h, statistics] = norm_.forward(x, parameters);
  if (saves(mode)) saved.tensors = {x, statistics};
  return h;
}

at::Tensor NormStage::again(std::span<const at::Tensor> parameters, const std::vector<at::Tensor>& saved) const {
  const PlainOperators guard;
  return norm_.again(saved[0], parameters, saved[1]);
}

at::Tensor NormStage::backward(const at::Tensor& d_h, const at::Tensor& d_residual,
                               std::span<const at::Tensor> parameters, std::span<const Grad> grads,
                               const std::vector<at::Tensor>& saved) const {
  const PlainOperators guard;
  return norm_.backward(d_h, saved[0], parameters, saved[1], d_residual, grads);
}

at::Tensor NormStage::backward_input(const at::Tensor& d_h, const at::Tensor& d_residual,
                                     std::span<const at::Tensor> parameters, std::vector<at::Tensor>& saved) const {
  const PlainOperators guard;
  const at::Tensor x = saved[0], statistics = saved[1];
  return norm_.backward_input(d_h, x, parameters, statistics, d_residual, saved);
}

void NormStage::backward_weight(std::span<const Grad> grads, const std::vector<at::Tensor>& saved) const {
  const PlainOperators guard;
  put_gradients(std::span(saved).subspan(2), grads);
}

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
      vocab_(sizes.vocab),
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

at::Tensor VocabularyHead::joined_logits(const at::Tensor& gathered) const {
  const PlainOperators guard;
  return gathered.transpose(0, 1).reshape({gathered.size(1), gathered.size(0) * padded_}).slice(1, 0, vocab_);
}

Layer make_layer(const model::Model& model, const model::Stage& stage, std::int64_t max_seq_len, DType compute,
                 std::int64_t loss_chunk_tokens, at::Device device) {
  using model::StageKind;
  const model::TensorPart& part = model.part;
  Layer layer;
  if (stage.kind == StageKind::positions) {
    layer.whole = std::make_unique<Positions>(part.sequence_parallel ? part.rank : 0, part.context);
  } else if (!model::is_partitioned(stage)) {
    layer.whole = make_stage(stage, model.held, max_seq_len, compute, loss_chunk_tokens, device);
  } else if (stage.kind == StageKind::norm || stage.kind == StageKind::post_norm) {
    layer.norm.emplace(model.sizes);
  } else if (stage.kind == StageKind::embedding) {
    layer.embedding.emplace(model.sizes, model::vocabulary_part(model.sizes.vocab, part));
  } else if (stage.kind == StageKind::logits) {
    layer.head.emplace(model.sizes, model::vocabulary_part(model.sizes.vocab, part), part.ranks, loss_chunk_tokens,
                       device);
  } else if (stage.kind == StageKind::input) {  // nothing of its own
  } else if (stage.kind == StageKind::qk_norm) {
    layer.qk_norm.emplace(model.held, model.sizes, model::kv_copies(model.sizes, part.ranks), stage, max_seq_len,
                          part.context, device);
  } else if (stage.kind == StageKind::projection) {
    layer.branch = std::make_unique<Projection>(model.held, stage, max_seq_len, part.context, device);
  } else if (stage.kind == StageKind::route) {
    layer.route.emplace(model.sizes, stage.fp8);
  } else if (stage.kind == StageKind::experts) {
    layer.experts.emplace(model.sizes, part.experts, stage.fp8);
  } else if (stage.kind == StageKind::merge) {  // a kernel, without parameters
  } else if (stage.kind == StageKind::attend) {
    layer.attend.emplace(model.held, stage, part.context, part.rank == 0);
  } else if (stage.kind == StageKind::core_attention) {
    layer.core_attention.emplace(model.held, stage, part.context);
  } else if (stage.kind == StageKind::output) {
    layer.output.emplace(model.held, part.rank == 0, stage.fp8);
  } else {
    layer.branch = make_branch(stage, model.held, max_seq_len, part.rank == 0, device);
  }
  return layer;
}

}  // namespace trireme::nn
