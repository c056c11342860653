// SPDX-License-Identifier: Apache-2.0
//
// Memory of a job, read from the counters: a rank's part of the state, and as many unsharded buffers as the schedule's
// rings have.
//
// ranks: 1 3
#include <gtest/gtest.h>

#include <string>

#include "support/jobs.hpp"
#include "train/memory_totals.hpp"
#include "trireme/device/allocator.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/model/activations.hpp"
#include "trireme/planner/replay.hpp"
#include "trireme/schedule/buffers.hpp"
#include "trireme/schedule/passes/build.hpp"
#include "trireme/schedule/passes/passes.hpp"
#include "trireme/shard/layout.hpp"

namespace trireme::train::memory_mpi_test {
namespace {

using device::Category;

constexpr auto immediate = config::SyncPolicy::immediate;
constexpr auto deferred = config::SyncPolicy::deferred;
constexpr int layers = 3;

class Memory : public testing::Test {
 protected:
  static void SetUpTestSuite() { device::install_allocator(); }

  [[nodiscard]] config::RunConfig run(config::Sync sync, DType compute = DType::fp32) const {
    config::RunConfig config = test::odd_run(files_, 2);
    config.sync = sync;
    config.precision.compute = compute;
    config.batch.micro = config.batch.global / (world_.size() * 4);
    return config;
  }

  /// The peak of every category while two steps run, above what there was before; and the schedule's ring sizes.
  struct Use {
    device::ByCategory peak, host;
    schedule::RingSizes rings;
    std::vector<int> ring_of;
  };
  [[nodiscard]] Use use(const config::RunConfig& config) const {
    const device::MemoryUse before = device::memory_use();
    device::reset_peaks();
    Use found;
    (void)test::train_job(config, world_, {.lane_threads = true}, [&](Job& job, int) {
      const device::MemoryUse use = device::memory_use();
      found.peak = use[device::Space::device].peak;
      found.host = use[device::Space::host].peak;
      found.rings = schedule::ring_sizes(job.executor().schedule(), job.model());
      found.ring_of = schedule::rings(job.model());
    });
    for (const Category category : device::all_categories()) {
      found.peak[category] = found.peak[category] - before[device::Space::device].current[category];
      found.host[category] = found.host[category] - before[device::Space::host].current[category];
    }
    return found;
  }

  [[nodiscard]] planner::Memory planned(const config::RunConfig& config) const {
    const config::Resolved mesh = config::resolve(config, world_.size());
    const auto step = schedule::build_step(model_, mesh.accumulation, schedule::policy_of(config, mesh));
    return planner::replay_memory(step, model_, layout(), planner::replay_options_of(config, mesh));
  }

  [[nodiscard]] shard::Layout layout() const { return {model_, world_.size()}; }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
  test::TokenFiles files_{world_, 257};
  model::Model model_ = model::build(test::odd_run(files_, 1).model);
};

/// Padded elements of the unsharded blocks, `layer_buffers` of them for the layers.
std::int64_t unsharded(const shard::Layout& layout, int layer_buffers) {
  return layout[ParamBlock{0}].padded() + layer_buffers * layout[ParamBlock{1}].padded() +
         layout[ParamBlock{layers + 1}].padded();
}

TEST_F(Memory, ShardedStateIsTheRanksPartOfTheWhole) {
  const std::int64_t shard = layout().shard_elements();
  std::int64_t parameters = 0;
  for (const model::ParameterBlock& block : model_.parameter_blocks)
    parameters += static_cast<std::int64_t>(block.parameters.size());
  const std::int64_t padding = 64 * (parameters + world_.size() * model_.param_blocks());
  EXPECT_LT(shard * world_.size(), model_.elements() + padding);

  const Use fp32 = use(run({}));
  EXPECT_EQ(fp32.peak[Category::parameters_sharded].value, 4 * shard);
  EXPECT_EQ(fp32.peak[Category::gradients_sharded].value, 4 * shard);
  EXPECT_EQ(fp32.peak[Category::optimizer].value, 8 * shard);

  const Use bf16 = use(run({}, DType::bf16));
  EXPECT_EQ(bf16.peak[Category::parameters_sharded].value, (4 + 2) * shard) << "fp32 masters and what is gathered";
  EXPECT_EQ(bf16.peak[Category::gradients_sharded].value, 4 * shard);
  EXPECT_EQ(bf16.peak[Category::optimizer].value, 8 * shard);

  config::RunConfig split = run({}, DType::bf16);
  split.precision.masters = config::Masters::split;
  EXPECT_EQ(use(split).peak[Category::parameters_sharded].value, (2 + 2) * shard) << "and what masters leave of it";

  config::RunConfig rounded = run({});
  rounded.precision.moments = DType::bf16;
  const Use found = use(rounded);
  EXPECT_EQ(found.peak[Category::optimizer].value, 4 * shard);
  EXPECT_EQ(found.peak[Category::optimizer], planned(rounded).optimizer);
}

TEST_F(Memory, UnshardedParametersPeakAtWhatThePolicyKeeps) {
  const auto peak = [&](config::Sync sync, DType compute = DType::fp32) {
    return use(run(sync, compute)).peak[Category::parameters_unsharded].value;
  };
  if (world_.size() == 1) {
    EXPECT_EQ(peak({}), 0) << "read where they lie";
    return;
  }
  EXPECT_EQ(peak({.prefetch_bytes = Bytes{0}}), 4 * unsharded(layout(), 1)) << "one layer at a time";
  EXPECT_EQ(peak({}), 4 * unsharded(layout(), 2)) << "and the next one";
  EXPECT_EQ(peak({}, DType::bf16), 2 * unsharded(layout(), 2));
  EXPECT_EQ(peak({.reshard_after_forward = 1}), 4 * unsharded(layout(), layers)) << "all that wait for their backward";
  EXPECT_EQ(peak({.policy = deferred, .reshard_after_forward = 1, .reshard_after_backward = false}),
            4 * unsharded(layout(), layers));
}

TEST_F(Memory, UnshardedGradientsPeakAtAllOfThemWhenDeferredElseAtTwoLayers) {
  const auto peak = [&](config::Sync sync, DType compute) {
    return use(run(sync, compute)).peak[Category::gradients_unsharded].value;
  };
  for (const DType compute : {DType::fp32, DType::bf16}) {
    if (world_.size() == 1) {
      EXPECT_EQ(peak({.policy = deferred}, compute), 0) << "written where the shards lie";
      EXPECT_EQ(peak({.policy = immediate}, compute), 4 * unsharded(layout(), 2)) << "a sum of several reductions";
      continue;
    }
    EXPECT_EQ(peak({.policy = deferred}, compute), 4 * layout().padded());
    EXPECT_EQ(peak({.policy = immediate}, compute), 4 * unsharded(layout(), 2));
  }
}

TEST_F(Memory, RingsHaveTheSizeOfTheSchedule) {
  for (const config::Sync& sync : {config::Sync{}, config::Sync{.prefetch_bytes = Bytes{std::int64_t{1} << 40}},
                                   config::Sync{.policy = deferred, .prefetch_bytes = Bytes{100'000}}}) {
    const Use found = use(run(sync));
    std::int64_t parameters = 0, gradients = 0;
    for (std::size_t ring = 0; ring < found.rings.parameters.size(); ++ring) {
      const auto member =
          std::find(found.ring_of.begin(), found.ring_of.end(), static_cast<int>(ring)) - found.ring_of.begin();
      const std::int64_t padded = layout()[ParamBlock{static_cast<int>(member)}].padded();
      parameters += found.rings.parameters[ring] * padded;
      gradients += found.rings.gradients[ring] * padded;
    }
    EXPECT_EQ(found.peak[Category::parameters_unsharded].value, 4 * parameters);
    EXPECT_EQ(found.peak[Category::gradients_unsharded].value, 4 * gradients);
  }
}

TEST_F(Memory, ActivationsPeakAtWhatTheStagesOfOneMicrobatchSave) {
  for (const DType compute : {DType::fp32, DType::bf16}) {
    const config::RunConfig config = run({}, compute);
    std::int64_t saved = 0;
    for (const model::ComputeBlock& block : model_.compute_blocks)
      for (const model::Stage& stage : block.stages)
        saved += model::saved_bytes(stage.kind, model_.sizes, config.batch.micro * config.data.seq_len, compute).value;
    EXPECT_EQ(use(config).peak[Category::activations].value, saved);
  }
}

/// Compares the planner's prediction for a run with the counters, byte for byte, on the device and on the host.
#define EXPECT_AS_PLANNED(config)                                                           \
  do {                                                                                      \
    const planner::Memory planned_ = planned(config);                                       \
    const Use found_ = use(config);                                                         \
    EXPECT_EQ(found_.peak[Category::activations], planned_.activations);                    \
    EXPECT_EQ(found_.peak[Category::parameters_sharded], planned_.parameters_sharded);      \
    EXPECT_EQ(found_.peak[Category::gradients_sharded], planned_.gradients_sharded);        \
    EXPECT_EQ(found_.peak[Category::optimizer], planned_.optimizer);                        \
    EXPECT_EQ(found_.host[Category::activations], planned_.host.activations);               \
    EXPECT_EQ(found_.host[Category::parameters_sharded], planned_.host.parameters_sharded); \
    EXPECT_EQ(found_.host[Category::gradients_sharded], planned_.host.gradients_sharded);   \
    EXPECT_EQ(found_.host[Category::optimizer], planned_.host.optimizer);                   \
  } while (false)

TEST_F(Memory, ActivationsAreAsPlannedInEveryRecomputeMode) {
  for (const DType compute : {DType::fp32, DType::bf16})
    for (const auto mode : {config::Recompute::none, config::Recompute::selective, config::Recompute::block})
      for (const std::int64_t every : {1, 2})
        for (const bool offload : {false, true}) {
          config::RunConfig config = run({}, compute);
          config.memory = {.recompute = mode,
                           .recompute_every = every,
                           .activation_offload = offload,
                           .activation_offload_min_bytes = Bytes{2000}};
          EXPECT_AS_PLANNED(config);
        }
}

TEST_F(Memory, OffloadingActivationsLeavesTwoBlocksOnTheDevice) {
  config::RunConfig config = run({});
  config.model.layers = 6;
  config.memory = {.activation_offload = true, .activation_offload_min_bytes = {}};
  const std::int64_t tokens = config.batch.micro * config.data.seq_len;
  std::int64_t layer = 0;
  for (const auto kind : {model::StageKind::attention, model::StageKind::mlp})
    layer += model::saved_bytes(kind, model_.sizes, tokens, DType::fp32).value;
  const Use found = use(config);
  EXPECT_EQ(found.peak[Category::activations].value, 2 * layer);
  EXPECT_EQ(found.host[Category::activations].value, 5 * layer);
}

TEST_F(Memory, OffloadingTheOptimizerLeavesNoneOfItOnTheDevice) {
  for (const DType compute : {DType::fp32, DType::bf16})
    for (const auto what : {config::Offload::optimizer, config::Offload::parameters})
      for (const double fraction : {1.0, 0.5, 0.0}) {
        config::RunConfig config = run({}, compute);
        if (compute == DType::bf16 && fraction == 0.5) config.precision.masters = config::Masters::split;
        if (compute == DType::bf16) config.precision.moments = DType::bf16;
        config.memory = {.offload = what, .offload_fraction = fraction};
        EXPECT_AS_PLANNED(config);
        if (fraction < 1) continue;
        const Use found = use(config);
        EXPECT_EQ(found.peak[Category::optimizer].value, 0);
        EXPECT_EQ(found.host[Category::optimizer].value,
                  2 * size_of(config.precision.moments) * layout().shard_elements());
      }
}

/// Copies between device and host, from the second step on: at the first one, data are already on the device.
TEST_F(Memory, CopiesBetweenDeviceAndHostAreAsPlanned) {
  for (const DType compute : {DType::fp32, DType::bf16})
    for (const auto what : {config::Offload::optimizer, config::Offload::parameters})
      for (const auto sync : {immediate, deferred}) {
        config::RunConfig config = run({.policy = sync}, compute);
        config.train.steps = 4;
        config.memory = {.activation_offload = true,
                         .activation_offload_min_bytes = Bytes{2000},
                         .offload = what,
                         .offload_fraction = 0.7};
        const config::Resolved mesh = config::resolve(config, world_.size());
        const auto step = schedule::build_step(model_, mesh.accumulation, schedule::policy_of(config, mesh));
        const planner::Traffic planned =
            planner::replay_traffic(step, model_, layout(), planner::replay_options_of(config, mesh));
        ASSERT_EQ(planned.at("host").size(), 4U);
        (void)test::train_job(config, world_, {.lane_threads = true}, [&](Job& job, int index) {
          const comm::TrafficTable counted = job.step_traffic();
          if (index == 0) return;
          for (const auto& [copy, moved] : planned.at("host")) {
            const comm::Traffic& found = counted.at("host").find(copy)->second;
            EXPECT_EQ(found.bytes, moved.bytes) << copy << " in step " << index;
            EXPECT_EQ(found.calls, moved.calls) << copy << " in step " << index;
          }
        });
      }
}

TEST_F(Memory, CategoriesAddUpToTheAllocatorsOwnCountAtThePeak) {
  for (const auto offload : {config::Offload::none, config::Offload::parameters}) {
    config::RunConfig config = run({});
    config.memory = {.activation_offload = true, .activation_offload_min_bytes = {}, .offload = offload};
    MemoryTotals highest;
    // One thread and no shared memory: what is charged is what the allocator gave, at every op.
    const JobOptions options{
        .lane_threads = false, .transport = comm::TransportChoice::mpi, .on_op = [&](int, std::int64_t) {
          if (const MemoryTotals now = totals(); now.charged > highest.charged) highest = now;
        }};
    (void)test::train_job(config, world_, options);
    EXPECT_GT(highest.charged, 0);
    EXPECT_NEAR(static_cast<double>(highest.charged) / static_cast<double>(highest.allocated), 1.0, 0.01);
  }
}

TEST_F(Memory, WithSharedWindowsCategoriesAddUpToTheAllocatorsCountAndTheKernels) {
  config::RunConfig config = run({});
  config.memory = {.activation_offload = true, .activation_offload_min_bytes = {}};
  const MemoryTotals before = totals();
  MemoryTotals highest{};
  std::int64_t windows = 0;
  const JobOptions options{
      .lane_threads = false, .transport = comm::TransportChoice::shared_memory, .on_op = [&](int, std::int64_t) {
        const MemoryTotals now = totals();
        if (now.charged <= highest.charged) return;
        highest = now;
        windows = shared_windows(world_.size());
      }};
  (void)test::train_job(config, world_, options);
  EXPECT_GT(windows, 0) << "nothing to count";
  EXPECT_NEAR(static_cast<double>(highest.charged - before.charged) /
                  static_cast<double>(highest.allocated - before.allocated + windows),
              1.0, 0.01);
}

TEST_F(Memory, AJobGivesEverythingBack) {
  (void)use(run({}));  // what is made once for the process
  const device::ByCategory before = device::memory_use()[device::Space::device].current;
  (void)use(run({.policy = deferred}));
  const device::ByCategory after = device::memory_use()[device::Space::device].current;
  for (const Category category : device::all_categories())
    EXPECT_EQ(after[category].value, before[category].value) << to_text(category);
}

}  // namespace
}  // namespace trireme::train::memory_mpi_test
