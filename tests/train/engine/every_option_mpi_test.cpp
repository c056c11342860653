// SPDX-License-Identifier: Apache-2.0
//
// Every option of [model], in every family, set otherwise: refused by name, or the logits are others. None is read and
// forgotten on the way to the kernels.
//
// ranks: 1
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/jobs.hpp"
#include "trireme/base/error.hpp"
#include "trireme/config/model_texts.hpp"
#include "trireme/huggingface/complete_model.hpp"
#include "trireme/model/architecture.hpp"

namespace trireme::train::every_option_mpi_test {
namespace {

using M = config::Model;
using Types = std::vector<std::string>;

struct Change {
  std::string name;
  std::function<void(M&)> make;
};

/// To a model in which everything that its family expresses is on.
std::vector<Change> changes() {
  const auto scaling = [](auto change) {
    return [change](M& m) {
      if (m.rope_scaling) change(*m.rope_scaling);
    };
  };
  using S = config::RopeScaling;
  return {
      {"norm_eps", [](M& m) { m.norm_eps *= 3; }},
      {"rope_theta", [](M& m) { m.rope_theta *= 1.5; }},
      {"rope_local_theta", [](M& m) { m.rope_local_theta += 40; }},
      {"rope_scaling", [](M& m) { m.rope_scaling.reset(); }},
      {"rope_scaling: linear", scaling([](S& s) { s.type = config::RopeType::linear; })},
      {"rope_scaling: llama3", scaling([](S& s) { s.type = config::RopeType::llama3; })},
      {"rope_scaling: dynamic", scaling([](S& s) { s.type = config::RopeType::dynamic; })},
      {"factor", scaling([](S& s) { s.factor *= 1.5; })},
      {"original_max_position_embeddings", scaling([](S& s) { s.original_max_position_embeddings += 9; })},
      {"attention_factor", scaling([](S& s) { s.attention_factor = 0.7; })},
      {"beta_fast", scaling([](S& s) { s.beta_fast = 1.6; })},
      {"beta_slow", scaling([](S& s) { s.beta_slow = 0.7; })},
      {"truncate", scaling([](S& s) { s.truncate = true; })},
      {"llama_4_scaling_beta", scaling([](S& s) { s.llama_4_scaling_beta += 0.3; })},
      {"mscale_all_dim", scaling([](S& s) { s.mscale_all_dim += 3; })},
      {"long_factor", scaling([](S& s) {
         for (double& f : s.long_factor) f *= 2;
       })},
      {"attention_bias", [](M& m) { m.attention_bias = !m.attention_bias; }},
      {"mlp_bias", [](M& m) { m.mlp_bias = !m.mlp_bias; }},
      {"qk_norm", [](M& m) { m.qk_norm = !m.qk_norm; }},
      {"sliding_window", [](M& m) { m.sliding_window += 1; }},
      {"layer_types", [](M& m) { m.layer_types = {config::full_attention}, m.sliding_window = 0; }},
      {"layer_types turned",
       [](M& m) {
         if (m.layer_types.size() > 1) std::swap(m.layer_types[0], m.layer_types[1]);
       }},
      {"no_rope_interval", [](M& m) { m.no_rope_interval += 1; }},
      {"partial_rotary_factor", [](M& m) { m.partial_rotary_factor = 0.5; }},
      {"query_pre_attn_scalar", [](M& m) { m.query_pre_attn_scalar += 30; }},
      {"attention_multiplier", [](M& m) { m.attention_multiplier += 0.3; }},
      {"attn_logit_softcapping", [](M& m) { m.attn_logit_softcapping += 0.5; }},
      {"final_logit_softcapping", [](M& m) { m.final_logit_softcapping += 0.5; }},
      {"embedding_multiplier", [](M& m) { m.embedding_multiplier += 0.5; }},
      {"residual_multiplier", [](M& m) { m.residual_multiplier += 0.5; }},
      {"logits_scaling", [](M& m) { m.logits_scaling += 0.5; }},
      {"q_rank", [](M& m) { m.q_rank = 0; }},
      {"kv_rank", [](M& m) { m.kv_rank += 2; }},
      {"nope_dim", [](M& m) { m.nope_dim += 2, m.head_dim = m.nope_dim + m.rope_dim; }},
      {"rope_dim", [](M& m) { m.rope_dim += 2, m.head_dim = m.nope_dim + m.rope_dim; }},
      {"value_dim", [](M& m) { m.value_dim += 2; }},
      {"rope_interleave", [](M& m) { m.rope_interleave = !m.rope_interleave; }},
      {"experts_per_token", [](M& m) { m.experts_per_token += 1; }},
      {"dense_layers", [](M& m) { m.dense_layers += 1; }},
      {"router_normalize", [](M& m) { m.router_normalize = !m.router_normalize; }},
      {"router_scale", [](M& m) { m.router_scale += 0.5; }},
      {"router_groups", [](M& m) { m.router_groups = 2; }},
      {"router_groups_kept", [](M& m) { m.router_groups = 4, m.router_groups_kept = 2; }},
      {"tie_embeddings", [](M& m) { m.tie_embeddings = !m.tie_embeddings; }},
  };
}

M everything_on(const model::Architecture& a) {
  M m{.architecture = std::string(a.name),
      .vocab_size = 97,
      .hidden_size = 48,
      .intermediate_size = 40,
      .layers = 4,
      .heads = 4,
      .norm_eps = 1e-2};
  if (a.expresses(&M::positions)) m.positions = 32;
  if (a.expresses(&M::kv_heads)) m.kv_heads = 2;
  if (!a.decoder.learned_positions) {
    m.head_dim = 12;
    m.rope_theta = 500;
    if (a.original_length_absent > 0)
      m.rope_scaling = config::RopeScaling{.type = config::RopeType::longrope,
                                           .factor = 3,
                                           .original_max_position_embeddings = 8,
                                           .short_factor = std::vector<double>(6, 1.25),
                                           .long_factor = std::vector<double>(6, 2.5)};
    else
      m.rope_scaling = config::RopeScaling{.type = config::RopeType::yarn,
                                           .factor = 3,
                                           .original_max_position_embeddings = 12,
                                           .beta_fast = 1.9,
                                           .beta_slow = 0.4,
                                           .truncate = false,
                                           .llama_4_scaling_beta = a.scales_queries ? 0.3 : 0.0};
  }
  if (a.decoder.latent) {
    m.q_rank = 20, m.kv_rank = 14, m.nope_dim = 8, m.rope_dim = 12, m.value_dim = 9;
    m.head_dim = 20, m.kv_heads = 4;
    m.rope_scaling->mscale_all_dim = 1;
  }
  if (a.skips_rope) m.no_rope_interval = 2;
  if (a.decoder.local_rope) m.rope_local_theta = 60;
  if (a.windows != model::Windows::none) m.sliding_window = 5;
  if (a.windows == model::Windows::layers || a.windows == model::Windows::switched)
    m.layer_types = {config::sliding_attention, config::full_attention};
  if (a.decoder.experts) {
    m.experts = 8, m.experts_per_token = 2;
    if (a.has_dense_layers()) m.dense_layers = 1;
    if (a.expresses(&M::shared_size)) m.shared_size = 40;
  }
  return m;
}

class EveryOption : public testing::Test {
 protected:
  [[nodiscard]] at::Tensor logits(const M& model) const {
    config::RunConfig config = test::odd_run(files_, 1);
    config.model = model;
    config.data.seq_len = tokens;
    config.batch = {.global = 1, .micro = 1};
    config = huggingface::with_derived_sizes(config);
    Job job(config, world_, JobOptions{.trains = false});
    job.store().fill(test::lively_values(7));
    at::Tensor ids = at::empty({1, tokens}, at::kInt);
    for (std::int64_t i = 0; i < tokens; ++i)
      ids.mutable_data_ptr<std::int32_t>()[i] = static_cast<std::int32_t>((37 * i + 11) % model.vocab_size);
    return job.infer(ids);
  }

  static constexpr std::int64_t tokens = 27;
  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
  test::TokenFiles files_{world_, 97};
};

TEST_F(EveryOption, IsRefusedOrMovesTheLogits) {
  int moved = 0, refused = 0;
  for (const model::Architecture& a : model::architectures()) {
    const M model = everything_on(a);
    const at::Tensor expected = logits(model);
    const double largest = expected.abs().max().item<double>();
    for (const Change& change : changes()) {
      SCOPED_TRACE(std::string(a.name) + ": " + change.name);
      M other = model;
      change.make(other);
      // A type of RoPE scaling reads its own keys only, and a window is nothing without layers that have it.
      if (config::model_texts(other) == config::model_texts(model)) continue;
      try {
        const double off = (logits(other) - expected).abs().max().item<double>() / largest;
        EXPECT_GT(off, 1e-3) << "nothing comes of it";
        ++moved;
      } catch (const ConfigError& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find("model."), std::string::npos) << text;
        ++refused;
      }
    }
  }
  EXPECT_GT(moved, 200);
  EXPECT_GT(refused, 200);
}

}  // namespace
}  // namespace trireme::train::every_option_mpi_test
