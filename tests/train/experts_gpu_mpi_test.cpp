// SPDX-License-Identifier: Apache-2.0
//
// Mixtures of experts on GPUs compute what the plain program computes on the CPU, with whole experts and with experts
// divided over ranks, over MPI and over NCCL; and move and keep the bytes that are planned for a GPU with the rows that
// were recorded.
//
// ranks: 1 2 4
//
// timeout: 600
//
// labels: gpu
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <ostream>
#include <string>

#include "support/gpu.hpp"
#include "support/jobs.hpp"
#include "support/nccl_ranks.hpp"
#include "support/training/as_planned.hpp"
#include "support/training/gpu_jobs.hpp"
#include "support/training/mixtures.hpp"
#include "trireme/device/gpus.hpp"

namespace trireme::train::experts_gpu_test {
namespace {

constexpr int steps = 3, rows = 16;
constexpr double tolerance = 1e-4, bf16_noise = 1e-2;

/// losses: Qwen3-MoE with all that a router's losses weigh. even: experts that follow each other in whole pieces of 16
/// bytes, so that their products go in groups in bf16.
/// even_fp8: the same with operands of 8 bits, expert by expert.
/// wide: so many rows that their workspace is the largest.
enum class Problem { qwen, losses, glm, qwen2, even, even_fp8, wide };

config::RunConfig problem_run(Problem problem, const test::TokenFiles& files) {
  config::RunConfig config = test::odd_mixture(files, steps);
  config::Model& model = config.model;
  config.batch.global = rows;
  config.data.seq_len = 12;  // which tensor and context ranks can divide
  switch (problem) {
    case Problem::qwen:
      model.dense_layers = 1;
      model.tie_embeddings = true;
      break;
    case Problem::losses: test::add_router_losses(config); break;
    case Problem::glm: test::make_glm(config); break;
    case Problem::qwen2:
      model.architecture = "qwen2_moe";
      model.shared_size = 37;
      break;
    case Problem::even_fp8:
      config.precision.fp8 = Fp8::rowwise;
      config.precision.fp8_skip = {"*self_attn*"};
      [[fallthrough]];
    case Problem::even:
      model.hidden_size = 32;
      model.expert_size = 16;
      model.experts = 8;
      break;
    case Problem::wide:
      model.experts_per_token = 5;
      model.expert_size = 160;
      break;
  }
  return config;
}

struct Case {
  std::string name;
  Problem problem = Problem::qwen;
  config::Mesh mesh{};
  config::Sync sync{};
  config::Memory memory{};
  DType compute = DType::fp32;
  bool nccl = false;  ///< requires a GPU for every rank
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

std::vector<Case> cases() {
  using enum config::Recompute;
  using config::Offload;
  constexpr auto deferred = config::SyncPolicy::deferred;
  const config::Memory moved{.activation_offload = true, .activation_offload_min_bytes = Bytes{0}};
  return {
      {.name = "Qwen", .memory = {.recompute = none}},
      {.name = "LossesActivationsOffloaded", .problem = Problem::losses, .memory = moved},
      {.name = "GlmRecomputedParametersOffloaded",
       .problem = Problem::glm,
       .memory = {.recompute = block, .offload = Offload::parameters}},
      {.name = "Qwen2", .problem = Problem::qwen2},
      {.name = "EvenBf16", .problem = Problem::even, .compute = DType::bf16},
      {.name = "EvenFp8", .problem = Problem::even_fp8, .compute = DType::bf16},
      {.name = "Wide", .problem = Problem::wide},
      {.name = "QwenPipeline", .mesh = {.pipeline = 2}},
      {.name = "NcclGlmReplicated", .problem = Problem::glm, .mesh = {.replicate = 2}, .nccl = true},
      {.name = "TwoOfGlmRecomputed", .problem = Problem::glm, .mesh = {.expert = 2}, .memory = {.recompute = block}},
      {.name = "TwoLossesOptimizerOffloaded",
       .problem = Problem::losses,
       .mesh = {.expert = 2},
       .memory = {.offload = Offload::optimizer}},
      {.name = "TwoWide", .problem = Problem::wide, .mesh = {.expert = 2}},
      {.name = "NcclTwo", .mesh = {.expert = 2}, .sync = {.policy = deferred}, .nccl = true},
      {.name = "NcclTwoLossesRecomputed",
       .problem = Problem::losses,
       .mesh = {.expert = 2},
       .memory = {.recompute = block},
       .nccl = true},
      {.name = "NcclTwoOfQwen2ReplicatedOffloaded",
       .problem = Problem::qwen2,
       .mesh = {.replicate = 2, .expert = 2},
       .memory = moved,
       .nccl = true},
      {.name = "TensorWithLosses", .problem = Problem::losses, .mesh = {.tensor = 2}, .memory = {.recompute = block}},
      {.name = "NcclContextAndTwoOfGlm", .problem = Problem::glm, .mesh = {.context = 2, .expert = 2}, .nccl = true},
      {.name = "NcclContextAndTensorAndFourWithLosses",
       .problem = Problem::losses,
       .mesh = {.tensor = 2, .context = 2, .expert = 2},
       .memory = {.recompute = block},
       .nccl = true},
      {.name = "NcclFourEvenBf16",
       .problem = Problem::even,
       .mesh = {.expert = 4},
       .compute = DType::bf16,
       .nccl = true},
  };
}

class ExpertsOnGpu : public test::GpuJobs<testing::TestWithParam<Case>> {
 protected:
  /// Trains; the last step runs separately and is compared with the plan for its rows.
  test::Curve train(const config::RunConfig& config) {
    const device::MemoryUse before = memory_at_rest();
    Job job(config, world_, options_);
    job.store().fill(test::lively_values(test::values_seed));
    const std::vector<executor::StepResult> results = test::last_step_alone(job, config);
    test::Curve curve;
    for (const executor::StepResult& result : results) {
      test::append(curve, result);
      for (const auto& tokens : result.expert_tokens)
        EXPECT_EQ(std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0}),
                  tokens.empty() ? 0 : rows * config.data.seq_len * config.model.experts_per_token);
    }
    expect_planned(config, job, results.back(), before);
    return curve;
  }

  static void expect_planned(const config::RunConfig& config, Job& job, const executor::StepResult& result,
                             const device::MemoryUse& before) {
    config::RunConfig on_gpu = config;
    on_gpu.device.type = config::DeviceType::cuda;
    const planner::ReplayOptions options = test::plan_options(on_gpu, job, result.expert_rows);
    const planner::Memory planned = planner::replay_memory(job.schedule(), job.model(), job.layout(), options);
    const device::MemoryUse use = device::memory_use();
    const auto found = [&](device::Category category) {
      return use[device::Space::device].peak[category] - before[device::Space::device].current[category];
    };
    // Every tensor takes whole blocks of 512 bytes; some tens are kept.
    EXPECT_GE(found(device::Category::activations), planned.activations);
    EXPECT_LE(found(device::Category::activations).value, planned.activations.value + 64 * 512);
    const Bytes workspace = found(device::Category::workspace);
    // Products of rows with separate scales take a MiB, of a size that is not documented.
    const Bytes little{config.precision.fp8 == Fp8::none ? 512 << 10 : 2 << 20};
    test::expect_gpu_workspace(config.precision.compute, workspace, planned, little);
    expect_workspace(config, workspace, planned);
    const planner::Traffic traffic = planner::replay_traffic(job.schedule(), job.model(), job.layout(), options);
    EXPECT_EQ(traffic.contains("expert"), config.mesh.expert > 1 || model::sums_loads(job.model()));
    test::expect_traffic(job.step_traffic(), traffic);
  }

  /// For layers whose rows dominate the workspace: in others attention or the head need more.
  static void expect_workspace(const config::RunConfig& config, Bytes found, const planner::Memory& planned) {
    if (config.model.expert_size < 100) return;
    EXPECT_EQ(planned.workspace_of, "rows of experts");
    EXPECT_LE(found, planned.workspace);
    EXPECT_GE(found.value, 0.6 * static_cast<double>(planned.workspace.value));
  }

  /// Curve of the plain program, which computes one token after the other; once for each problem.
  const test::Curve& plain(Problem problem, const test::TokenFiles& files) const {
    test::Curve& curve = curves_[problem];
    if (curve.losses.empty()) curve = test::plain_curve(problem_run(problem, files), world_);
    return curve;
  }

 private:
  static inline std::map<Problem, test::Curve> curves_;
};

TEST_P(ExpertsOnGpu, FollowThePlainProgramOnTheCpuAndMoveWhatIsPlanned) {
  const Case& c = GetParam();
  const std::int64_t parts = c.mesh.tensor * c.mesh.context, copies = c.mesh.replicate * c.mesh.pipeline;
  if (world_.size() % (copies * parts) != 0 || world_.size() / copies % c.mesh.expert != 0)
    GTEST_SKIP() << "needs another number of ranks";
  if (c.nccl && !test::nccl_ranks_fit(world_)) GTEST_SKIP() << test::no_nccl_between;
  options_.link = c.nccl ? comm::DeviceLink::nccl : comm::DeviceLink::staged;
  const test::TokenFiles files(world_, 257);
  config::RunConfig config = problem_run(c.problem, files);
  config.mesh = c.mesh;
  config.sync = c.sync;
  config.memory = c.memory;
  config.precision.compute = c.compute;
  config.batch.micro = config.batch.global / (world_.size() / (c.mesh.pipeline * parts) * 2);
  const test::Deviation found = test::deviation(train(config), plain(c.problem, files));
  EXPECT_LE(found.loss, c.compute == DType::fp32 ? tolerance : bf16_noise);
  EXPECT_LE(found.grad_norm, c.compute == DType::fp32 ? tolerance : 10 * bf16_noise);
}

INSTANTIATE_TEST_SUITE_P(, ExpertsOnGpu, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

/// Evaluations count no tokens, and know the loss of the host.
TEST_F(ExpertsOnGpu, EvaluateAsTheHostDoes) {
  const test::TokenFiles files(world_, 257);
  config::RunConfig config = problem_run(Problem::glm, files);
  config.batch.micro = config.batch.global / world_.size();
  const auto loss = [&](const JobOptions& options) {
    JobOptions of = options;
    of.trains = false;
    Job job(config, world_, of);
    job.store().fill(test::lively_values(test::values_seed));
    data::BatchReader reader(config.data, data::Split::train, config.model.vocab_size, config.run.seed,
                             job.batch_shape());
    return job.evaluate(reader, 2).loss;
  };
  const double here = loss({});
  EXPECT_NEAR(loss(options_), here, 1e-5 * here);
}

}  // namespace
}  // namespace trireme::train::experts_gpu_test
