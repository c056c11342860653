// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "support/reference/plain_llama.hpp"
#include "support/shared_directory.hpp"
#include "trireme/comm/counters.hpp"
#include "trireme/config/run_config.hpp"
#include "trireme/mpi/communicator.hpp"
#include "trireme/store/parameter_store.hpp"
#include "trireme/train/engine/job.hpp"

/// Small training jobs over any communicator, for the tests that compare them with the plain program or with each
/// other.
namespace trireme::test {

/// Two raw uint16 token files in a directory that all ranks see. Collective over `world`, its end too.
/// Tokens follow a noisy rule, so that there is something to learn; a stretch of the first file repeats `silent_token`.
class TokenFiles {
 public:
  TokenFiles(const mpi::Communicator& world, std::int64_t vocab_size);
  [[nodiscard]] std::vector<config::TokenSource> sources() const;
  /// Two files, the first of which has a mask of targets.
  [[nodiscard]] std::vector<config::TokenSource> sources_with_mask() const;
  /// One file of `samples` samples of `seq_len` tokens, with a mask: no target of those that are `silent` counts. It
  /// takes the place of the one before. Collective over the world.
  [[nodiscard]] std::vector<config::TokenSource> sources_with_silence(
      std::int64_t samples, std::int64_t seq_len, const std::function<bool(std::int64_t sample)>& silent) const;
  /// One file of `samples` samples of `seq_len` tokens; those that are `constant` repeat one token. Collective over the
  /// world.
  [[nodiscard]] std::vector<config::TokenSource> sources_with_constants(
      std::int64_t samples, std::int64_t seq_len, const std::function<bool(std::int64_t sample)>& constant) const;
  /// Two files; the first has a mask of targets and, in `.ends` or in a Megatron index only, the ends of its documents,
  /// which no token marks.
  [[nodiscard]] std::vector<config::TokenSource> sources_with_documents(bool in_sidecar) const;
  /// Two files of documents of 1 to 30 tokens, whose ends are in `.ends` or, of the first, in a Megatron index only;
  /// the first has a mask of targets.
  [[nodiscard]] std::vector<config::TokenSource> sources_to_pack(bool in_sidecar) const;
  static constexpr std::int64_t silent_token = 5;

 private:
  const mpi::Communicator& world_;
  std::int64_t vocab_size_;
  SharedDirectory directory_;
};

/// A Llama with odd sizes, grouped key and value heads and a separate head_dim, in fp32.
[[nodiscard]] config::RunConfig odd_run(const TokenFiles& files, int steps);

/// A GPT-2 whose sizes divide by little, tied, in fp32.
[[nodiscard]] config::RunConfig gpt2_run(const TokenFiles& files, int steps);

/// Seed of the initial weights of `train_job` and `plain_curve`.
constexpr std::uint64_t values_seed = 7;

/// Values that make mistakes visible: attention far from uniform, norm weights with a spread, small embeddings.
[[nodiscard]] store::ParameterInitializer lively_values(std::uint64_t seed);

/// All parameters of the run's model in full, from `values`.
[[nodiscard]] Parameters whole_parameters(const config::RunConfig& config, const store::ParameterInitializer& values);

/// Result of a job on this rank.
struct Outcome {
  Curve curve;
  std::vector<bool> skipped;                                          ///< by step
  std::vector<double> block_grad_norms;                               ///< of the last step, with metrics.block_norms
  std::vector<at::Tensor> masters;                                    ///< by parameter block: this rank's shard
  comm::TrafficTable traffic;                                         ///< of the last step
  std::vector<std::vector<std::vector<std::int64_t>>> expert_tokens;  ///< by step, layer and expert
};

/// Called after every step; lanes may be running ahead unless it was the last one.
using AfterStep = std::function<void(train::Job& job, int step)>;

/// Trains `config.train.steps` steps. Collective over `world`.
[[nodiscard]] Outcome train_job(const config::RunConfig& config, const mpi::Communicator& world,
                                const train::JobOptions& options = {}, const AfterStep& after_step = {});

/// The same from first weights a third of which lie halfway between two bf16 numbers. `rounded_away`: after every step
/// a plain loop rounds the bf16 copy of fp32 masters anew, ties away from zero: what split masters promise the bits of.
[[nodiscard]] Outcome train_job_from_ties(const config::RunConfig& config, const mpi::Communicator& world,
                                          const train::JobOptions& options, bool rounded_away);

/// The plain program's curve for the same run, in fp32 or fp64: computed on rank 0, on all ranks. Collective over
/// `world`. nudge: every first weight is moved by that part of it, up or down. values: the first weights.
[[nodiscard]] Curve plain_curve(const config::RunConfig& config, const mpi::Communicator& world,
                                const std::set<int>& skipped = {}, at::ScalarType type = at::kFloat, double nudge = 0,
                                const store::ParameterInitializer& values = lively_values(values_seed));

/// Adds a step to a curve.
void append(Curve& curve, const executor::StepResult& result);

/// Largest difference of two curves, relative to `expected`.
struct Deviation {
  double loss = 0;  ///< of the losses, z-losses among them
  double grad_norm = 0;
};
[[nodiscard]] Deviation deviation(const Curve& curve, const Curve& expected);

}  // namespace trireme::test
