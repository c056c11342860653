// SPDX-License-Identifier: Apache-2.0
//
// A pipeline computes the same as one plain program, with every schedule, combined with sharding, replication and
// tensor parallelism. The traffic and memory of every rank are as planned.
//
// ranks: 2 3 4 8
//
// timeout: 1200
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "train/pipeline/pipeline_runs.hpp"

namespace trireme::train::pipeline_parity_mpi_test {
namespace {

using config::PipelineKind;
using pipeline_runs::Problem;

struct Case {
  std::string name;
  Problem problem = Problem::llama;
  config::Pipeline pipeline{};
  config::Mesh mesh{};  ///< shard: the ranks left
  int microbatches = 4;
  config::Sync sync{};
  config::Memory memory{};
  JobOptions options{.lane_threads = true, .poison = true};
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

const config::Sync kept{
    .policy = config::SyncPolicy::deferred, .reshard_after_forward = 1, .reshard_after_backward = false};
const JobOptions one_thread{.lane_threads = false, .poison = true};

std::vector<Case> cases() {
  constexpr auto deferred = config::SyncPolicy::deferred, immediate_all = config::SyncPolicy::immediate_all;
  constexpr auto gpipe = PipelineKind::gpipe, f1b = PipelineKind::one_f_one_b, interleaved = PipelineKind::interleaved;
  return {
      {.name = "Gpipe", .pipeline = {.schedule = gpipe}, .mesh = {.pipeline = 2}},
      {.name = "GpipeOnOneThreadTied",
       .problem = Problem::tied,
       .pipeline = {.schedule = gpipe},
       .mesh = {.pipeline = 2},
       .sync = kept,
       .options = one_thread},
      {.name = "GpipeOfFour",
       .problem = Problem::everything_else,
       .pipeline = {.schedule = gpipe},
       .mesh = {.pipeline = 4},
       .sync = {.policy = deferred},
       .memory = {.recompute = config::Recompute::block}},
      {.name = "OneFOneB", .pipeline = {.schedule = f1b}, .mesh = {.pipeline = 2}},
      {.name = "OneFOneBOfOneMicrobatch", .pipeline = {.schedule = f1b}, .mesh = {.pipeline = 2}, .microbatches = 1},
      {.name = "OneFOneBTiedKept",
       .problem = Problem::tied,
       .pipeline = {.schedule = f1b},
       .mesh = {.pipeline = 2},
       .sync = kept},
      {.name = "OneFOneBWithEverythingElse",
       .problem = Problem::everything_else,
       .pipeline = {.schedule = f1b, .layers = {4, 2}},
       .mesh = {.pipeline = 2},
       .memory = {.recompute = config::Recompute::block, .recompute_every = 2}},
      {.name = "OneFOneBGpt2OnOneThread",
       .problem = Problem::gpt2,
       .pipeline = {.schedule = f1b},
       .mesh = {.pipeline = 2},
       .sync = {.policy = immediate_all},
       .options = one_thread},
      {.name = "OneFOneBTiedOptimizerOnHost",
       .problem = Problem::tied,
       .pipeline = {.schedule = f1b},
       .mesh = {.pipeline = 2},
       .memory = {.offload = config::Offload::optimizer}},
      {.name = "OneFOneBReplicatedTied",
       .problem = Problem::tied,
       .pipeline = {.schedule = f1b},
       .mesh = {.replicate = 2, .pipeline = 2},
       .sync = {.policy = immediate_all}},
      {.name = "OneFOneBTensorSequence",
       .problem = Problem::tied,
       .pipeline = {.schedule = f1b},
       .mesh = {.tensor = 2, .sequence_parallel = true, .pipeline = 2},
       .sync = {.policy = deferred}},
      {.name = "OneFOneBTensorGpt2",
       .problem = Problem::gpt2,
       .pipeline = {.schedule = f1b},
       .mesh = {.tensor = 2, .sequence_parallel = false, .pipeline = 2},
       .memory = {.recompute = config::Recompute::none,
                  .offload = config::Offload::parameters,
                  .offload_fraction = 0.5}},
      {.name = "OneFOneBOfFour", .pipeline = {.schedule = f1b}, .mesh = {.pipeline = 4}, .sync = kept},
      {.name = "Interleaved", .pipeline = {.schedule = interleaved}, .mesh = {.pipeline = 2}},
      {.name = "InterleavedByFourTiedKept",
       .problem = Problem::deep,
       .pipeline = {.schedule = interleaved, .chunks = 4},
       .mesh = {.pipeline = 2},
       .sync = kept},
      {.name = "InterleavedWithEverythingElse",
       .problem = Problem::everything_else,
       .pipeline = {.schedule = interleaved, .layers = {1, 2, 2, 1}},
       .mesh = {.pipeline = 2},
       .sync = {.policy = deferred},
       .memory = {.recompute = config::Recompute::block},
       .options = one_thread},
  };
}

/// And of schedules that split the backward.
std::vector<Case> all_cases() {
  using enum PipelineKind;
  using enum Problem;
  std::vector<Case> all = cases();
  const auto add = [&](std::string name, PipelineKind kind, Problem problem, std::int64_t ranks,
                       int microbatches = 4) -> Case& {
    return all.emplace_back(Case{.name = std::move(name),
                                 .problem = problem,
                                 .pipeline = {.schedule = kind},
                                 .mesh = {.pipeline = ranks},
                                 .microbatches = microbatches});
  };
  const auto in_tensor = [](Case& c, bool sequence) { c.mesh.tensor = 2, c.mesh.sequence_parallel = sequence; };
  add("OneFOneBOfFourTied", one_f_one_b, tied, 4, 6);
  add("OneFOneBOfEight", one_f_one_b, deep, 8, 8);
  in_tensor(add("InterleavedTensorSequence", interleaved, llama, 2), true);
  add("InterleavedOfFourTied", interleaved, deep, 4).sync.policy = config::SyncPolicy::immediate_all;
  add("ZbH1Tied", zb_h1, tied, 2);
  Case& all_kept = add("ZbH1KeepingAll", zb_h1, everything_else, 2);
  all_kept.memory.recompute = config::Recompute::none, all_kept.sync = kept, all_kept.options = one_thread;
  add("ZbH1OfThreeGpt2", zb_h1, gpt2, 3).memory = {.recompute = config::Recompute::block, .recompute_every = 2};
  in_tensor(add("ZbH1TensorSequence", zb_h1, tied, 2), true);
  add("ZbH1OfFourOptimizerOnHost", zb_h1, llama, 4).memory.offload = config::Offload::optimizer;
  add("ZbvTied", zbv, tied, 2);
  add("ZbvOfOneMicrobatch", zbv, llama, 2, 1);
  add("ZbvOfThree", zbv, everything_else, 3).memory.recompute = config::Recompute::block;
  Case& alone = add("ZbvOfFourTied", zbv, deep, 4, 6);
  alone.sync = kept, alone.options = one_thread;
  in_tensor(add("ZbvTensorGpt2", zbv, gpt2, 2), false);
  add("DualPipeV", dualpipev, everything_else, 2).sync.policy = config::SyncPolicy::deferred;
  add("DualPipeVOfThree", dualpipev, tied, 3, 6);
  add("DualPipeVOfFour", dualpipev, deep, 4, 8).memory.recompute = config::Recompute::none;
  in_tensor(add("DualPipeVTensorSequence", dualpipev, tied, 2), true);
  return all;
}

class PipelineParity : public test::ParityTest<Case> {
 protected:
  static void SetUpTestSuite() {
    device::install_allocator();
    test::ParityTest<Case>::SetUpTestSuite();
  }
};

TEST_P(PipelineParity, FollowsThePlainProgramAndThePlan) {
  const Case& c = GetParam();
  const auto together = static_cast<int>(c.mesh.pipeline * c.mesh.replicate * c.mesh.tensor);
  const int dp = world_->size() / static_cast<int>(c.mesh.pipeline * c.mesh.tensor);
  if (world_->size() % together != 0 || 48 % std::max(1, dp * c.microbatches) != 0)
    GTEST_SKIP() << "needs another number of ranks";
  config::RunConfig config = problem_run(c.problem, *files_);
  config.mesh = c.mesh;
  config.pipeline = c.pipeline;
  config.sync = c.sync;
  config.memory = c.memory;
  config.batch.micro = config.batch.global / (dp * c.microbatches);
  const test::Curve& expected = plain(c.problem);
  expect_parity(pipeline_runs::curve_as_planned(config, *world_, c.options), expected);
}

INSTANTIATE_TEST_SUITE_P(, PipelineParity, testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.name; });

TEST_F(PipelineParity, EvaluatesWhatOneRankEvaluates) {
  if (world_->size() % 2 != 0) GTEST_SKIP() << "needs another number of ranks";
  config::RunConfig config = problem_run(Problem::tied, *files_);
  config.data.validation = config.data.train;
  config.mesh.pipeline = 2;
  config.batch.global = 8;
  const auto evaluated = [&](const config::RunConfig& run, const mpi::Communicator& ranks) {
    Job job(run, ranks, {.lane_threads = true, .poison = true});
    job.store().fill(test::lively_values(test::values_seed));
    data::BatchReader train(run.data, data::Split::train, run.model.vocab_size, run.run.seed, job.batch_shape(), {});
    data::BatchShape shape = job.batch_shape();
    shape.accumulation = 1;
    std::vector<double> losses;
    for (int round = 0; round < 2; ++round) {  // between steps, too
      data::BatchReader reader(run.data, data::Split::validation, run.model.vocab_size, run.run.seed, shape);
      losses.push_back(job.evaluate(reader, 24 / shape.global()).loss);
      (void)job.step(train.next(), 1e-3, true);
    }
    return losses;
  };
  std::vector<std::vector<double>> found;
  for (const PipelineKind kind : {PipelineKind::interleaved, PipelineKind::zbv}) {  // in a loop and in a V
    config.pipeline.schedule = kind;
    found.push_back(evaluated(config, *world_));
  }
  config.mesh = {};
  config.pipeline = {};
  const mpi::Communicator alone = world_->split(world_->rank(), 0);
  const std::vector<double> expected = evaluated(config, alone);
  for (const std::vector<double>& losses : found)
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(losses[i], expected[i], test::loss_tolerance * expected[i]) << "round " << i;
}

TEST_F(PipelineParity, ASkippedStepIsSkippedOnAllPipelineRanks) {
  if (world_->size() % 2 != 0) GTEST_SKIP() << "needs another number of ranks";
  config::RunConfig config = problem_run(Problem::llama, *files_);
  config.train.steps = 2;
  config.mesh.pipeline = 2;
  config.batch.micro = config.batch.global / (world_->size() / 2 * 4);
  Job job(config, *world_, {.lane_threads = true});
  // One number of one rank, which the other pipeline rank never sees.
  job.store().fill([&](const model::Parameter& parameter, shard::Range elements, std::span<float> out) {
    test::lively_values(test::values_seed)(parameter, elements, out);
    if (parameter.name.find("layers.0.mlp") != std::string::npos && elements.begin == 0 && !out.empty())
      out.front() = std::numeric_limits<float>::infinity();
  });
  std::vector<at::Tensor> before;
  for (int b = 0; b < job.model().param_blocks(); ++b) before.push_back(job.store().master(ParamBlock{b}).clone());
  data::BatchReader reader(config.data, data::Split::train, config.model.vocab_size, config.run.seed, job.batch_shape(),
                           {});
  EXPECT_TRUE(job.step(reader.next(), 1e-3, true).skipped);
  for (int b = 0; b < job.model().param_blocks(); ++b)
    EXPECT_TRUE(job.store().master(ParamBlock{b}).equal(before[static_cast<std::size_t>(b)])) << "block " << b;
}

}  // namespace
}  // namespace trireme::train::pipeline_parity_mpi_test
