// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints of twelve meshes, each loaded on each: together the ranks hold what was saved, and the steps after it
// are those of the unbroken run.
//
// ranks: 4
// timeout: 600
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "restart.hpp"
#include "support/parity.hpp"
#include "trireme/data/batch_reader.hpp"
#include "trireme/optim/learning_rate.hpp"
#include "trireme/train/save/checkpointing.hpp"

namespace trireme::train::every_mesh_mpi_test {
namespace {

constexpr int saved_after = 2, last = 4;

struct Placed {
  const char* name;
  int ranks;
  config::Mesh mesh;
  std::int64_t micro;
  config::Pipeline pipeline{};
  config::ContextMethod method = config::ContextMethod::gather;
  std::int64_t ranks_per_file = 1;
};

std::vector<Placed> meshes() {
  using enum config::PipelineKind;
  constexpr auto heads = config::ContextMethod::heads;
  return {{"one rank", 1, {}, 4},
          {"three shards", 3, {}, 4},
          {"replicas of shards", 4, {.replicate = 2}, 6},
          {"tensor of shards", 4, {.tensor = 2}, 8, {}, {}, 2},
          {"context", 4, {.context = 4}, 12},
          {"replicas of context by heads", 4, {.replicate = 2, .context = 2}, 4, {}, heads},
          {"context and tensor", 4, {.tensor = 2, .context = 2}, 8},
          {"gpipe of four", 4, {.pipeline = 4}, 12, {.schedule = gpipe}},
          {"1f1b of replicas", 4, {.replicate = 2, .pipeline = 2}, 6, {.schedule = one_f_one_b, .layers = {1, 3}}},
          {"interleaved of shards", 4, {.pipeline = 2}, 6, {.schedule = interleaved}, {}, 2},
          {"zbv of tensor", 4, {.tensor = 2, .pipeline = 2}, 8, {.schedule = zbv}},
          {"dualpipev of context", 4, {.context = 2, .pipeline = 2}, 12, {.schedule = dualpipev}, heads}};
}

class EveryMesh : public Restart {
 protected:
  /// A run of a tied model, whose embedding two ranks of some pipelines hold.
  [[nodiscard]] config::RunConfig run_on(const Placed& placed, const std::string& name, int until) const {
    config::RunConfig config = run(name, until);
    config.model.layers = 4;
    config.model.tie_embeddings = true;
    config.data.seq_len = 16;
    config.optimizer.lr = 5e-4;
    config.optimizer.eps = 1e-6;  // suppresses steps by gradients that are only rounding
    config.mesh = placed.mesh;
    config.pipeline = placed.pipeline;
    config.context.method = placed.method;
    config.batch.micro = placed.micro;
    config.checkpoint.ranks_per_file = placed.ranks_per_file;
    return config;
  }

  /// The steps from what `job` has loaded on.
  [[nodiscard]] static test::Curve steps_from(Job& job, const checkpoint::State& state) {
    const config::RunConfig& config = job.config();
    data::BatchReader reader(config.data, data::Split::train, config.model.vocab_size, config.run.seed,
                             job.batch_shape(), {.position = state.samples, .taken = {}});
    test::Curve curve;
    for (std::int64_t step = state.step; step < last; ++step) {
      const double lr = optim::learning_rate(config.lr, config.optimizer.lr, step, config.train.steps);
      const executor::StepResult result = job.step(reader.next(), lr, true);
      curve.losses.push_back(result.loss);
      curve.grad_norms.push_back(result.grad_norm);
    }
    return curve;
  }
};

TEST_F(EveryMesh, LoadsWhatEveryMeshSaved) {
  const std::vector<Placed> all = meshes();
  ASSERT_EQ(all.size(), 12U);
  const config::RunConfig unbroken = run_on(all.front(), "unbroken", last);
  ASSERT_EQ(train(unbroken, 1), ExitCode::done);
  test::Curve expected = curve(unbroken);
  for (std::vector<double>* values : {&expected.losses, &expected.grad_norms})
    values->erase(values->begin(), values->begin() + saved_after);
  std::vector<std::string> saved;
  for (const Placed& placed : all) {
    const config::RunConfig config = run_on(placed, std::string(placed.name), saved_after);
    ASSERT_EQ(
        train(config, placed.ranks, static_cast<int>(placed.mesh.replicate), static_cast<int>(placed.mesh.tensor)),
        ExitCode::done);
    saved.push_back(config.checkpoint.directory + "/" + checkpoint::step_name(saved_after));
  }
  test::Deviation worst;
  for (const Placed& placed : all) {
    const mpi::Communicator some = world_.split(world_.rank() < placed.ranks ? 0 : 1, world_.rank());
    if (world_.rank() >= placed.ranks) continue;
    Job job(run_on(placed, "unbroken", last), some, {.lane_threads = true, .poison = true});
    for (std::size_t from = 0; from < all.size(); ++from) {
      SCOPED_TRACE(std::string(all[from].name) + ", then " + placed.name);
      const checkpoint::Manifest manifest = checkpoint::load(some, saved[from], shards_of(job));
      for (int b = 0; b < job.model().param_blocks(); ++b) job.store().derive_compute_shard(ParamBlock{b});
      job.restore(manifest.state.updates);
      const test::Deviation off = test::deviation(steps_from(job, manifest.state), expected);
      EXPECT_LT(off.loss, test::loss_tolerance);
      EXPECT_LT(off.grad_norm, test::norm_tolerance);
      worst = {std::max(worst.loss, off.loss), std::max(worst.grad_norm, off.grad_norm)};
    }
  }
  if (world_.rank() == 0)
    std::printf("%zu meshes, each loaded on each: losses off by %.1e, gradient norms by %.1e\n", all.size(), worst.loss,
                worst.grad_norm);
}

}  // namespace
}  // namespace trireme::train::every_mesh_mpi_test
