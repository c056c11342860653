// SPDX-License-Identifier: Apache-2.0
// Full sharding of other trainers as a schedule of Trireme's; memory of all of them from a list of tensors.
#include <algorithm>
#include <cmath>

#include "trireme/base/error.hpp"
#include "trireme/config/rules.hpp"
#include "trireme/planner/time/predict.hpp"
#include "trireme/planner/validate/published.hpp"

namespace trireme::planner {
namespace {

config::RunConfig config_of(const PublishedRow& row) {
  const auto whole = [](double value) { return static_cast<std::int64_t>(std::llround(value)); };
  config::RunConfig config;
  config.model.architecture = row.gated ? "llama" : "gpt2";
  config.model.vocab_size = whole(row.vocab);
  config.model.hidden_size = whole(row.hidden);
  config.model.intermediate_size = whole(row.intermediate);
  config.model.layers = whole(row.layers);
  config.model.heads = whole(row.heads);
  if (row.gated) config.model.kv_heads = whole(row.kv_heads);
  if (!row.gated) config.model.positions = whole(row.seq_len);
  config.model.tie_embeddings = row.tied;
  config.data.seq_len = whole(row.seq_len);
  config.mesh.replicate = whole(row.replicas);
  config.mesh.tensor = whole(row.tensor);
  config.batch = {.global = whole(row.dp * row.micro * row.accumulation), .micro = whole(row.micro)};
  config.sync.policy = config::SyncPolicy::immediate_all;
  config.sync.reshard_after_forward = row.sharding == Sharding::full ? 0 : 1;
  switch (row.again) {
    case ComputedAgain::nothing: config.memory.recompute = config::Recompute::none; break;
    case ComputedAgain::attention: config.memory.recompute = config::Recompute::selective; break;
    case ComputedAgain::blocks:
    case ComputedAgain::operations:  // every second product again: as every second layer
      config.memory.recompute = config::Recompute::block;
      config.memory.recompute_every = row.again == ComputedAgain::operations ? 2 : row.again_every;
  }
  config.device.type = config::DeviceType::cuda;
  return config;
}

}  // namespace

double simulated_step(const PublishedRow& row, const Machine& machine, const Trainer& trainer) {
  const config::RunConfig config = config_of(row);
  for (const config::Rule& rule : config::rules())
    if (const auto broken = rule.broken(config)) throw ConfigError(*broken);
  const PredictOptions options{.software = trainer.software, .percentiles = false, .few_layers = true, .memory = false};
  return predict(config, static_cast<int>(row.ranks), machine, options).expected.seconds;
}

double published_memory(const PublishedRow& row) {
  constexpr double fixed = 0.8e9, weight = 5.6, state = 12.05, hidden = 29, inner = 13, logit = 5.8;
  constexpr double reserved = 1.03;  // overhead of PyTorch's allocator
  const double layer = (2 + 2 * row.kv_heads / row.heads) * row.hidden * row.hidden +
                       (row.gated ? 3 : 2) * row.hidden * row.intermediate;
  const double embedding = row.vocab * row.hidden;
  const double params = row.layers * layer + embedding * (row.tied ? 1 : 2);
  const double saved = (hidden * row.hidden + inner * row.intermediate) * row.tokens() / row.tensor;
  const double logits = logit * row.vocab * row.tokens() / row.tensor;
  if (row.sharding >= Sharding::zero2) {
    const double shards = row.dp / row.replicas * row.tensor;
    const double gathered = 2 * (2 * layer + embedding) / row.tensor + 4 * std::max(layer, embedding) / row.tensor;
    const double input = 2 * row.hidden * row.tokens() / row.tensor;
    // selective op: the input, attention's output and half of the products' outputs.
    const double kept = (4 * row.hidden + (1 + row.kv_heads / row.heads) * 2 * row.hidden + 2 * row.intermediate) *
                        row.tokens() / row.tensor;
    const double whole = 1.0 - 1.0 / row.again_every;  // of the layers, with all that they save
    const double activations = row.again == ComputedAgain::blocks
                                   ? row.layers * (whole * saved + (1 - whole) * input) + saved
                               : row.again == ComputedAgain::operations ? row.layers * kept + saved
                                                                        : row.layers * saved;
    // bf16 logits, their fp32 copy, its softmax and its gradient; a compiler saves the copy and half of the softmax.
    const double of_a_logit = row.fused_kernels() ? 11 : 14;
    return reserved *
           (fixed + 16 * params / shards + gathered + activations + of_a_logit * row.vocab * row.tokens() / row.tensor);
  }
  const double shards = row.sharding == Sharding::zero1 ? row.dp : 1;
  const auto rank = [&](double elements, double microbatches, bool head) {
    return fixed + elements / row.tensor * (weight + state / shards) +
           row.layers / row.pipeline * saved * microbatches + (head ? logits : 0);
  };
  if (row.pipeline == 1) return rank(params, 1, true);
  const double stage = row.layers / row.pipeline * layer + embedding;
  return std::max(rank(stage, std::min(row.pipeline, row.accumulation), false), rank(stage, 1, true));
}

}  // namespace trireme::planner
