// SPDX-License-Identifier: Apache-2.0
//
// Tensor parallelism computes the same as one plain program: both architectures, with and without sequence parallelism,
// combined with sharding and replication, with state and activations in host memory.
//
// ranks: 2 4 8
//
// timeout: 600
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "support/parity.hpp"

namespace trireme::train::tensor_parity_mpi_test {
namespace {

constexpr int accumulation = 3;

enum class Problem { llama, tied_llama, gpt2, gpt2_untied, olmo };

struct Case {
  int replicate, tensor;
  Problem problem;
  bool sequence_parallel;
  config::Sync sync;
  config::Memory memory{};
};

/// 257 tokens of the vocabulary divide by nothing; 4 ranks share the 2 key and value heads of Llama in pairs.
config::RunConfig problem_run(Problem problem, const test::TokenFiles& files) {
  const bool gpt2 = problem == Problem::gpt2 || problem == Problem::gpt2_untied;
  const int steps = test::parity_steps();
  config::RunConfig config = gpt2 ? test::gpt2_run(files, steps) : test::odd_run(files, steps);
  config.model.heads = 8;
  if (problem == Problem::olmo) {
    config.model.architecture = "olmo3";
    config.model.sliding_window = 5;
    config.model.layer_types = {config::sliding_attention, config::full_attention};
    config.model.attention_bias = true;
    config.optimizer.lr = 5e-4;
    config.optimizer.eps = 1e-6;
  }
  config.model.tie_embeddings = problem == Problem::tied_llama || problem == Problem::gpt2;
  if (problem == Problem::tied_llama) config.data.ignore_targets = {test::TokenFiles::silent_token, 20, 21};
  if (problem == Problem::tied_llama || problem == Problem::gpt2_untied) {
    config.data.document_end = 7;
    config.data.document_mask = true;
    config.loss.z_loss = 1e-2;
    config.optimizer.eps = 1e-6;  // suppresses steps by gradients that are only rounding
  }
  return config;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  constexpr auto deferred = config::SyncPolicy::deferred, immediate_all = config::SyncPolicy::immediate_all;
  for (const auto& [replicate, tensor] : {std::pair{1, 2}, {2, 2}, {1, 4}})
    for (const bool sequence_parallel : {true, false}) {
      all.push_back({replicate, tensor, Problem::llama, sequence_parallel, {}});
      all.push_back({replicate, tensor, Problem::tied_llama, sequence_parallel, {.policy = deferred}});
      all.push_back({replicate,
                     tensor,
                     Problem::gpt2,
                     sequence_parallel,
                     {.reshard_after_forward = 1},
                     {.recompute = config::Recompute::none}});
      all.push_back({replicate,
                     tensor,
                     sequence_parallel ? Problem::llama : Problem::gpt2,
                     sequence_parallel,
                     {.reshard_after_backward = false},
                     {.recompute = config::Recompute::block}});
      all.push_back({replicate,
                     tensor,
                     sequence_parallel ? Problem::tied_llama : Problem::gpt2,
                     sequence_parallel,
                     {.policy = immediate_all},
                     {.recompute = config::Recompute::block,
                      .activation_offload = true,
                      .activation_offload_min_bytes = {},
                      .offload = config::Offload::optimizer}});
      all.push_back({replicate,
                     tensor,
                     sequence_parallel ? Problem::gpt2_untied : Problem::llama,
                     sequence_parallel,
                     {.policy = deferred, .reshard_after_forward = 1},
                     {.activation_offload = true,
                      .activation_offload_min_bytes = {},
                      .offload = config::Offload::parameters,
                      .offload_fraction = 0.5}});
      all.push_back({replicate, tensor, Problem::olmo, sequence_parallel, {}});
      all.push_back({replicate,
                     tensor,
                     Problem::olmo,
                     sequence_parallel,
                     {.policy = deferred},
                     {.recompute = config::Recompute::block,
                      .activation_offload = sequence_parallel,
                      .activation_offload_min_bytes = {}}});
      if (!sequence_parallel) continue;
      all.push_back({replicate, tensor, Problem::gpt2_untied, sequence_parallel, {.policy = deferred}});
      all.push_back({replicate,
                     tensor,
                     Problem::tied_llama,
                     sequence_parallel,
                     {.policy = immediate_all},
                     {.recompute = config::Recompute::none}});
    }
  return all;
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  constexpr const char* problems[] = {"Llama", "TiedLlama", "Gpt2", "Gpt2Untied", "Olmo"};
  constexpr const char* policies[] = {"Immediate", "Deferred", "ImmediateAll", "Auto"};
  constexpr const char* offloads[] = {"", "OptimizerOnHost", "ParametersOnHost"};
  const Case& c = info.param;
  return std::string(problems[static_cast<int>(c.problem)]) + policies[static_cast<int>(c.sync.policy)] + "Replicate" +
         std::to_string(c.replicate) + "Tensor" + std::to_string(c.tensor) + (c.sequence_parallel ? "Sequence" : "") +
         (c.memory.recompute == config::Recompute::block ? "Again" : "") +
         (c.memory.activation_offload ? "ActivationsOnHost" : "") + offloads[static_cast<int>(c.memory.offload)];
}

class TensorParity : public test::ParityTest<Case> {};

TEST_P(TensorParity, FollowsThePlainProgram) {
  const Case& c = GetParam();
  const int ranks = world_->size();
  if (ranks % (c.replicate * c.tensor) != 0) GTEST_SKIP() << "needs another number of ranks";
  config::RunConfig config = problem_run(c.problem, *files_);
  config.mesh = {.replicate = c.replicate, .shard = -1, .tensor = c.tensor, .sequence_parallel = c.sequence_parallel};
  config.sync = c.sync;
  config.memory = c.memory;
  config.batch.micro = config.batch.global / (ranks / c.tensor * accumulation);
  const test::Curve& expected = plain(c.problem);
  expect_parity(test::train_job(config, *world_, {.lane_threads = c.replicate == 1, .poison = true}).curve, expected);
}

INSTANTIATE_TEST_SUITE_P(, TensorParity, testing::ValuesIn(cases()), name_of);

}  // namespace
}  // namespace trireme::train::tensor_parity_mpi_test
