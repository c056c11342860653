// SPDX-License-Identifier: Apache-2.0
#include "trireme/nn/stage.hpp"

#include "nn/codes.hpp"
#include "nn/embedding.hpp"
#include "nn/head.hpp"
#include "nn/moe.hpp"
#include "nn/positions.hpp"
#include "trireme/base/error.hpp"

namespace trireme::nn {

Result Stage::backward_input(at::Tensor /*d_hidden*/, std::span<const at::Tensor> /*parameters*/,
                             const Microbatch& /*microbatch*/, Saved& /*saved*/) const {
  throw BugError("a stage of this kind does not split its backward");
}

void Stage::backward_weight(std::span<const Grad> /*grads*/, const Saved& /*saved*/) const {
  throw BugError("a stage of this kind does not split its backward");
}

std::unique_ptr<Stage> make_stage(const model::Stage& stage, const model::Sizes& sizes, std::int64_t max_seq_len,
                                  DType /*compute*/, std::int64_t loss_chunk_tokens, at::Device device) {
  switch (stage.kind) {
    case model::StageKind::embedding: return std::make_unique<Embedding>(EmbeddingScale(sizes.decoder, sizes.hidden));
    case model::StageKind::positions: return std::make_unique<Positions>();
    case model::StageKind::attention:
    case model::StageKind::mlp: return make_sublayer(stage, sizes, max_seq_len, device);
    case model::StageKind::moe: return std::make_unique<Moe>(sizes, stage.fp8);
    case model::StageKind::head: return std::make_unique<Head>(sizes, loss_chunk_tokens, device);
    default: throw BugError("make_stage: a stage between exchanges is no whole one");
  }
}

}  // namespace trireme::nn
