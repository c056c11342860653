// SPDX-License-Identifier: Apache-2.0
#include "trireme/nn/stage.hpp"

#include "trireme/base/error.hpp"
#include "trireme/nn/attention.hpp"
#include "trireme/nn/embedding.hpp"
#include "trireme/nn/head.hpp"
#include "trireme/nn/mlp.hpp"

namespace trireme::nn {

std::unique_ptr<Stage> make_stage(model::StageKind kind, const model::Sizes& sizes, std::int64_t max_seq_len,
                                  DType /*compute*/, std::int64_t loss_chunk_tokens) {
  switch (kind) {
    case model::StageKind::embedding: return std::make_unique<Embedding>();
    case model::StageKind::attention: return std::make_unique<Attention>(sizes, max_seq_len);
    case model::StageKind::mlp: return std::make_unique<Mlp>(sizes);
    case model::StageKind::head: return std::make_unique<Head>(sizes, loss_chunk_tokens);
  }
  throw BugError("make_stage: unknown kind of stage");
}

}  // namespace trireme::nn
