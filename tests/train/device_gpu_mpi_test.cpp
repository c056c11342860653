// SPDX-License-Identifier: Apache-2.0
//
// Training on a GPU computes what the plain program computes on the CPU, in fp32 to 1e-4; ranks that share a GPU, whose
// tensors travel over MPI, what one rank does.
//
// ranks: 1 2 4
//
// timeout: 600
//
// labels: gpu
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>
#include <ostream>
#include <string>

#include "support/gpu.hpp"
#include "support/jobs.hpp"
#include "support/nccl_ranks.hpp"
#include "support/training/as_planned.hpp"
#include "support/training/gpu_jobs.hpp"
#include "trireme/device/gpus.hpp"
#include "trireme/kernels/attention_library.hpp"
#include "trireme/kernels/fp8_format.hpp"

namespace trireme::train {
namespace {

/// Few: ranks that share a real GPU take turns on it. The first step runs op by op, the second records graphs.
const int steps = test::on_gpu() ? 6 : 4;
const int rows = test::on_gpu() ? 48 : 16;  // of a step
constexpr double tolerance = 1e-4, bf16_noise = 1e-2;

struct Case {
  std::string name;
  bool gpt2 = false;
  config::Sync sync;
  config::Memory memory;
  int replicate = 1;
  int tensor = 1;
  int accumulation = 2;
  bool graphs = false;
  bool documents = false;
  DType compute = DType::fp32;
  bool nccl = false;     ///< requires a GPU for every rank
  bool windows = false;  ///< comm.nccl_windows
  config::Reduce reduce = config::Reduce::fp32;
  std::optional<config::PipelineKind> pipeline{};        ///< of two ranks
  std::optional<config::ContextMethod> context{};        ///< of two ranks
  Fp8 fp8 = Fp8::none;                                   ///< with sizes that it divides, where the GPU has it
  std::optional<kernels::AttentionLibrary> attention{};  ///< in place of dense, with heads that it takes
  /// Ranks that work on one part of the batch.
  [[nodiscard]] int together() const { return tensor * (pipeline ? 2 : 1) * (context ? 2 : 1); }
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

constexpr auto deferred = config::SyncPolicy::deferred;
using config::ContextMethod;
using config::Offload;
using config::PipelineKind;
using config::Recompute;
using kernels::AttentionLibrary;
constexpr auto f1b = PipelineKind::one_f_one_b;

const Case cases[] = {
    {.name = "Immediate", .memory = {.recompute = Recompute::none}},
    {.name = "Deferred", .sync = {.policy = deferred}},
    {.name = "ReplicatedSelective", .memory = {.recompute = Recompute::selective}, .replicate = 2},
    {.name = "KeptAfterForwardRecomputed",
     .sync = {.reshard_after_forward = 1},
     .memory = {.recompute = Recompute::block}},
    {.name = "ActivationsOffloaded", .memory = {.activation_offload = true, .activation_offload_min_bytes = Bytes{0}}},
    {.name = "OptimizerOffloaded", .memory = {.offload = Offload::optimizer}},
    {.name = "ParametersOffloaded", .sync = {.policy = deferred}, .memory = {.offload = Offload::parameters}},
    {.name = "HalfOffloaded", .memory = {.offload = Offload::parameters, .offload_fraction = 0.5}},
    {.name = "Gpt2", .gpt2 = true},
    {.name = "Tensor", .tensor = 2},
    {.name = "Documents", .documents = true},
    {.name = "Bf16", .sync = {.policy = deferred}, .compute = DType::bf16},
    {.name = "Bf16ParametersOffloaded", .memory = {.offload = Offload::parameters}, .compute = DType::bf16},
    {.name = "Pipeline", .accumulation = 4, .pipeline = f1b},
    {.name = "PipelineGpt2OptimizerOffloaded",
     .gpt2 = true,
     .memory = {.offload = Offload::optimizer},
     .accumulation = 4,
     .pipeline = f1b},
    {.name = "PipelineZbvRecomputed",
     .memory = {.recompute = Recompute::block},
     .accumulation = 4,
     .pipeline = PipelineKind::zbv},
    {.name = "NcclPipelineGpt2", .gpt2 = true, .accumulation = 4, .nccl = true, .pipeline = f1b},
    {.name = "NcclPipelineInterleavedDeferred",
     .sync = {.policy = deferred},
     .accumulation = 4,
     .nccl = true,
     .pipeline = PipelineKind::interleaved},
    {.name = "NcclPipelineZbH1Tensor", .tensor = 2, .accumulation = 4, .nccl = true, .pipeline = PipelineKind::zb_h1},
    {.name = "NcclPipelineDualPipeVBf16",
     .sync = {.policy = deferred},
     .accumulation = 4,
     .compute = DType::bf16,
     .nccl = true,
     .pipeline = PipelineKind::dualpipev},
    {.name = "ContextGather", .context = ContextMethod::gather},
    {.name = "ContextHeadsRecomputed", .memory = {.recompute = Recompute::block}, .context = ContextMethod::heads},
    {.name = "NcclContextGatherDocuments", .documents = true, .nccl = true, .context = ContextMethod::gather},
    {.name = "NcclContextHeadsDocuments", .documents = true, .nccl = true, .context = ContextMethod::heads},
    {.name = "NcclContextGatherGpt2Recomputed",
     .gpt2 = true,
     .memory = {.recompute = Recompute::block},
     .nccl = true,
     .context = ContextMethod::gather},
    {.name = "NcclContextGatherBf16Pipeline",
     .accumulation = 4,
     .compute = DType::bf16,
     .nccl = true,
     .pipeline = f1b,
     .context = ContextMethod::gather},
    {.name = "NcclContextHeadsTensor", .tensor = 2, .nccl = true, .context = ContextMethod::heads},
    {.name = "Nccl", .nccl = true},
    {.name = "NcclReplicatedDeferred", .sync = {.policy = deferred}, .replicate = 2, .nccl = true},
    {.name = "NcclParametersOffloaded", .memory = {.offload = Offload::parameters}, .replicate = 2, .nccl = true},
    {.name = "NcclTensor", .tensor = 2, .nccl = true},
    {.name = "NcclWindows", .nccl = true, .windows = true},
    {.name = "NcclPipelineZbv", .accumulation = 4, .nccl = true, .pipeline = PipelineKind::zbv},
    {.name = "NcclBf16Wire", .nccl = true, .reduce = config::Reduce::bf16_wire},
    {.name = "NcclBf16WireWindows", .nccl = true, .windows = true, .reduce = config::Reduce::bf16_wire},
    {.name = "NcclOptimizerOffloaded", .memory = {.offload = Offload::optimizer}, .nccl = true},
    {.name = "NcclReplicatedWindows", .replicate = 2, .nccl = true, .windows = true},
    {.name = "NcclGraphs", .graphs = true, .nccl = true},
    {.name = "Graphs", .graphs = true},
    {.name = "GraphsBf16", .graphs = true, .compute = DType::bf16},
    {.name = "GraphsDeferredKeptAfterForward",
     .sync = {.policy = deferred, .reshard_after_forward = 1},
     .accumulation = 4,
     .graphs = true},
    {.name = "GraphsRecomputedReplicated", .memory = {.recompute = Recompute::block}, .replicate = 2, .graphs = true},
    {.name = "GraphsParametersOffloaded", .memory = {.offload = Offload::parameters}, .graphs = true},
    {.name = "GraphsGpt2", .gpt2 = true, .graphs = true},
    {.name = "Bf16Flash",
     .memory = {.recompute = Recompute::selective},
     .compute = DType::bf16,
     .attention = AttentionLibrary::flash},
    {.name = "Bf16CudnnGraphs", .graphs = true, .compute = DType::bf16, .attention = AttentionLibrary::cudnn},
    {.name = "NcclContextGatherBf16Flash",
     .compute = DType::bf16,
     .nccl = true,
     .context = ContextMethod::gather,
     .attention = AttentionLibrary::flash},
    {.name = "Fp8Rowwise", .compute = DType::bf16, .fp8 = Fp8::rowwise},
    {.name = "Fp8RowwiseGraphs", .graphs = true, .compute = DType::bf16, .fp8 = Fp8::rowwise},
    {.name = "Fp8RowwiseTensor", .tensor = 2, .compute = DType::bf16, .fp8 = Fp8::rowwise},
    {.name = "Fp8Mx", .memory = {.recompute = Recompute::block}, .compute = DType::bf16, .fp8 = Fp8::mx},
    {.name = "Fp8Tensorwise", .sync = {.policy = deferred}, .compute = DType::bf16, .fp8 = Fp8::tensorwise},
};

class DeviceTraining : public test::GpuJobs<testing::TestWithParam<Case>> {
 protected:
  config::RunConfig run_of(const Case& c, const test::TokenFiles& files, int ranks) const {
    config::RunConfig config = c.gpt2 ? test::gpt2_run(files, steps) : test::odd_run(files, steps);
    config.sync = c.sync;
    config.memory = c.memory;
    config.precision.compute = c.compute;
    config.mesh.replicate = ranks % c.replicate == 0 ? c.replicate : 1;
    config.mesh.tensor = c.tensor;
    if (c.pipeline) {
      config.mesh.pipeline = 2;
      config.pipeline.schedule = *c.pipeline;
      config.model.layers = 4;
    }
    if (c.context) {
      config.mesh.context = 2;
      config.context.method = *c.context;
      config.data.seq_len = 12;
      if (c.tensor > 1) config.model.heads = config.model.kv_heads = 4;
    }
    config.batch.global = rows;
    config.precision.fp8 = c.fp8;
    if (c.fp8 != Fp8::none || c.attention) {
      config.model.hidden_size = 64;
      config.model.intermediate_size = 128;
      config.model.heads = 4;
      config.model.head_dim = 32;
    }
    if (c.documents) {
      config.data.document_mask = true;
      config.data.document_end = 7;
    }
    config.comm.nccl_windows = c.windows;
    config.precision.reduce = c.reduce;
    config.device.cuda_graphs = c.graphs;
    if (c.graphs) config.data.ignore_targets.clear();
    config.batch.micro = config.batch.global / (ranks / c.together() * c.accumulation);
    return config;
  }
  static void expect_near(const test::Curve& curve, const test::Curve& expected, DType compute = DType::fp32) {
    const test::Deviation found = test::deviation(curve, expected);
    EXPECT_LE(found.loss, compute == DType::fp32 ? tolerance : bf16_noise);
    EXPECT_LE(found.grad_norm, compute == DType::fp32 ? tolerance : 10 * bf16_noise);
  }
};

TEST_P(DeviceTraining, FollowsThePlainProgramOnTheCpu) {
  const Case& c = GetParam();
  if (world_.size() % c.together() != 0) GTEST_SKIP() << "needs another number of ranks";
  if (c.nccl && !test::nccl_ranks_fit(world_)) GTEST_SKIP() << test::no_nccl_between;
  const device::Gpu gpu = device::probe_gpus().gpus.front();
  if (test::on_gpu() && kernels::missing_fp8_capability(c.fp8, gpu.major, gpu.minor) != nullptr)
    GTEST_SKIP() << "needs another GPU";
  options_.link = c.nccl ? comm::DeviceLink::nccl : comm::DeviceLink::staged;
  options_.nccl.windows = c.windows;
  options_.nccl.bf16_wire = c.reduce == config::Reduce::bf16_wire;
  const test::TokenFiles files(world_, 257);
  const config::RunConfig config = run_of(c, files, world_.size());
  const kernels::AttentionLibrary usual = kernels::attention_library();
  kernels::set_attention_library(c.attention.value_or(kernels::AttentionLibrary::dense));
  const DType least = c.reduce == config::Reduce::bf16_wire ? DType::bf16 : c.compute;
  expect_near(test::train_job(config, world_, options_).curve, test::plain_curve(config, world_), least);
  kernels::set_attention_library(usual);
}

INSTANTIATE_TEST_SUITE_P(, DeviceTraining, testing::ValuesIn(cases), [](const auto& info) { return info.param.name; });

TEST_F(DeviceTraining, RanksThatShareAGpuAgreeWithOne) {
  const test::TokenFiles files(world_, 257);
  const Case usual{};
  const test::Curve together = test::train_job(run_of(usual, files, world_.size()), world_, options_).curve;
  const mpi::Communicator alone = world_.split(world_.rank(), 0);
  expect_near(together, test::train_job(run_of(usual, files, 1), alone, options_).curve);
}

TEST_F(DeviceTraining, GraphsAndEvaluationsLeaveEachOtherAlone) {
  const test::TokenFiles files(world_, 257);
  options_.lane_threads = false;  // nothing runs ahead of an evaluation
  const auto losses = [&](bool graphs, bool evaluates) {
    config::RunConfig config = run_of({.graphs = graphs}, files, world_.size());
    config.data.validation = files.sources();
    test::Curve curve;
    std::vector<double> evaluated;
    curve = test::train_job(config, world_, options_, [&](Job& job, int) {
              data::BatchShape shape = job.batch_shape();
              shape.accumulation = 1;
              data::BatchReader reader(config.data, data::Split::validation, config.model.vocab_size, 1, shape);
              if (evaluates) evaluated.push_back(job.evaluate(reader, 1).loss);
            }).curve;
    return std::pair{curve, evaluated};
  };
  const auto [alone, none] = losses(true, false);
  const auto [curve, evaluated] = losses(true, true);
  const auto [usual, expected] = losses(false, true);
  EXPECT_EQ(curve.losses, alone.losses);
  EXPECT_EQ(curve.grad_norms, alone.grad_norms);
  expect_near(curve, usual);
  expect_near({evaluated, {}, {}}, {expected, {}, {}});
}

TEST_F(DeviceTraining, CountsTheGpusMemoryApartFromTheHosts) {
  const test::TokenFiles files(world_, 257);
  device::MemoryUse use;
  (void)test::train_job(run_of({}, files, world_.size()), world_, options_,
                        [&](Job&, int) { use = device::memory_use(); });
  const device::ByCategory& there = use[device::Space::device].peak;
  for (const device::Category c :
       {device::Category::parameters_sharded, device::Category::gradients_sharded, device::Category::optimizer,
        device::Category::activations, device::Category::workspace})
    EXPECT_GT(there[c].value, 0) << device::to_text(c);
  if (world_.size() > 1) {  // else parameters are read where their shards lie
    EXPECT_GT(there[device::Category::parameters_unsharded].value, 0);
  }
  EXPECT_EQ(use[device::Space::host].peak[device::Category::parameters_unsharded].value, 0);
}

TEST_F(DeviceTraining, PlansTheWorkspaceOfItsProducts) {
  const test::TokenFiles files(world_, 257);
  const auto workspace = [] {
    const device::MemoryUse use = device::memory_use();
    const device::SpaceUse& here = use[device::Space::device];
    return std::pair{here.current[device::Category::workspace], here.peak[device::Category::workspace]};
  };
  for (const Case& c : {Case{}, Case{.compute = DType::bf16}, Case{.graphs = true, .compute = DType::bf16}}) {
    SCOPED_TRACE(fmt::format("{}{}", to_text(c.compute), c.graphs ? ", graphs" : ""));
    const Bytes before = workspace().first;
    device::reset_peaks();
    config::RunConfig config = run_of(c, files, world_.size());
    config.train.steps = 3;
    Bytes of_libtorch{0};
    (void)test::train_job(config, world_, options_, [&](Job& job, int step) {
      if (step + 1 < config.train.steps) return;
      config.device.type = config::DeviceType::cuda;
      const planner::Memory planned =
          planner::replay_memory(job.schedule(), job.model(), job.layout(), test::plan_options(config, job));
      test::expect_gpu_workspace(c.compute, workspace().second - before, planned);
      of_libtorch = test::libtorch_workspace(c.compute, planned);
    });
    const Bytes left = workspace().first - before;  // nothing, or libtorch's own
    EXPECT_TRUE(left == Bytes{0} || left == of_libtorch) << to_text(left);
  }
}

}  // namespace
}  // namespace trireme::train
