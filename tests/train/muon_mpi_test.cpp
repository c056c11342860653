// SPDX-License-Identifier: Apache-2.0
//
// optimizer.name = muon: losses are those of the plain program on every mesh; given the same gradients, all meshes have
// the same bits of weights and momentum; memory and traffic are as planned; a run resumes to the bit, and a switch of
// the optimizer restarts the moments.
//
// ranks: 1 2 4
// timeout: 600
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "support/jobs.hpp"
#include "support/parity.hpp"
#include "support/tensors.hpp"
#include "support/training/as_planned.hpp"
#include "support/training/mixtures.hpp"
#include "train/save/restart.hpp"
#include "trireme/base/philox.hpp"
#include "trireme/data/batch_reader.hpp"
#include "trireme/device/allocator.hpp"
#include "trireme/mpi/gather.hpp"
#include "trireme/shard/copies.hpp"
#include "trireme/train/save/checkpointing.hpp"

namespace trireme::train::muon_mpi_test {
namespace {

/// Newton-Schulz iterations amplify rounding in directions with small singular values, up to 485 times (slope of the
/// five polynomials at 0). Gradients that differ by 1e-7 between meshes thus move an update by at most 5e-5 of itself,
/// and a loss by 5e-5 of its change in a step, 1e-2: 5e-7.
using test::loss_tolerance, test::norm_tolerance;
constexpr int steps = 5;

struct Placed {
  const char* name;
  int ranks;
  config::Mesh mesh;
  config::Pipeline pipeline{};
};

std::vector<Placed> meshes() {
  using enum config::PipelineKind;
  return {{"one rank", 1, {}},
          {"two shards", 2, {}},
          {"replicas", 2, {.replicate = 2}},
          {"tensor", 2, {.tensor = 2}},
          {"context", 2, {.context = 2}},
          {"pipeline", 2, {.pipeline = 2}, {.schedule = one_f_one_b}},
          {"four shards", 4, {}},
          {"tensor of shards", 4, {.tensor = 2}},
          {"four tensor ranks", 4, {.tensor = 4}},
          {"context and tensor", 4, {.tensor = 2, .context = 2}},
          {"replicas of context", 4, {.replicate = 2, .context = 2}},
          {"interleaved of shards", 4, {.pipeline = 2}, {.schedule = interleaved}}};
}

class Muon : public Restart {
 protected:
  static void SetUpTestSuite() { device::install_allocator(); }

  [[nodiscard]] config::RunConfig muon(config::RunConfig config) const {
    config.optimizer.name = config::OptimizerName::muon;
    config.optimizer.lr = 5e-4;
    config.optimizer.eps = 1e-6;  // suppresses steps by gradients that are only rounding
    config.optimizer.groups = {{.names = {"*up_proj*"}, .lr = 0.5, .weight_decay = 0.3}};
    config.optimizer.adamw = {"*.1.*o_proj*", "*.2.*"};
    config.optimizer.window_bytes = Bytes{1 << 10};
    config.data.seq_len = 16;
    return config;
  }
  [[nodiscard]] config::RunConfig placed(config::RunConfig config, const Placed& at) const {
    config.mesh = at.mesh;
    config.mesh.sequence_parallel = at.mesh.tensor > 1;
    config.pipeline = at.pipeline;
    config.batch.micro = config.batch.global / (at.ranks * 2);
    if (at.mesh.tensor > 1) config.batch.micro *= at.mesh.tensor;
    return config;
  }
  /// Calls `use` with the communicator of the mesh's ranks.
  template <class Use>
  void on(const Placed& at, const Use& use) const {
    if (at.ranks > world_.size()) return;
    SCOPED_TRACE(at.name);
    const mpi::Communicator some = world_.split(world_.rank() < at.ranks ? 0 : 1, world_.rank());
    if (world_.rank() < at.ranks) use(some);
  }
};

config::RunConfig of_model(config::RunConfig config) {
  config.model.layers = 4;
  config.model.heads = 8;
  config.model.kv_heads = 2;
  config.model.head_dim = 12;
  return config;
}

TEST_F(Muon, HasTheLossesOfThePlainProgramOnEveryMesh) {
  const config::RunConfig config = muon(of_model(test::odd_run(files_, steps)));
  const test::Curve expected = test::plain_curve(config, world_);
  config::RunConfig adamw = config;
  adamw.optimizer.name = config::OptimizerName::adamw;
  EXPECT_GT(test::deviation(test::plain_curve(adamw, world_), expected).loss, 20 * loss_tolerance);
  test::Deviation worst;
  for (const Placed& at : meshes())
    on(at, [&](const mpi::Communicator& some) {
      const device::MemoryUse before = device::memory_use();
      device::reset_peaks();
      const config::RunConfig here = placed(config, at);
      const test::Curve found =
          test::train_job(here, some, {.lane_threads = true, .poison = true}, [&](Job& job, int step) {
            if (step + 1 < steps) return;
            const planner::ReplayOptions options = test::plan_options(here, job);
            test::expect_memory(before, planner::replay_memory(job.schedule(), job.model(), job.layout(), options),
                                job);
            const planner::Traffic traffic =
                planner::replay_traffic(job.schedule(), job.model(), job.layout(), options);
            EXPECT_EQ(traffic.contains("fold"), job.mesh().size(mesh::fold) > 1);
            test::expect_traffic(job.step_traffic(), traffic);
          }).curve;
      const test::Deviation off = test::deviation(found, expected);
      EXPECT_LT(off.loss, loss_tolerance);
      EXPECT_LT(off.grad_norm, norm_tolerance);
      worst = {std::max(worst.loss, off.loss), std::max(worst.grad_norm, off.grad_norm)};
    });
  if (world_.rank() == 0)
    std::printf("Muon on every mesh: losses off by %.1e, gradient norms by %.1e\n", worst.loss, worst.grad_norm);
}

TEST_F(Muon, HasTheLossesOfThePlainProgramWithJoinedQueriesExpertsAndEveryScale) {
  test::Deviation worst;
  const auto compare = [&](const config::RunConfig& config, config::Mesh mesh, const char* name) {
    SCOPED_TRACE(name);
    config::RunConfig here = config;
    here.mesh = mesh;
    here.batch.micro = config.batch.global / world_.size();
    const test::Deviation off =
        test::deviation(test::train_job(here, world_, {.lane_threads = true}).curve, test::plain_curve(config, world_));
    EXPECT_LT(off.loss, loss_tolerance);
    EXPECT_LT(off.grad_norm, norm_tolerance);
    worst = {std::max(worst.loss, off.loss), std::max(worst.grad_norm, off.grad_norm)};
  };
  config::RunConfig gpt2 = muon(test::gpt2_run(files_, steps));
  gpt2.optimizer.scale = config::MuonScale::jordan;
  compare(gpt2, {}, "gpt2");
  config::RunConfig plain = muon(test::odd_run(files_, steps));
  plain.optimizer.scale = config::MuonScale::spectral;
  plain.optimizer.nesterov = false;
  compare(plain, {}, "spectral without Nesterov");
  config::RunConfig mixture = muon(test::odd_mixture(files_, steps));
  compare(mixture, {}, "experts");
  if (world_.size() > 1) compare(mixture, {.expert = 2}, "expert ranks");
  if (world_.rank() == 0)
    std::printf("Muon of other models: losses off by %.1e, gradient norms by %.1e\n", worst.loss, worst.grad_norm);
}

/// Replaces the gradients of a step by values that depend on the parameter and the element alone.
void fill_gradients(Job& job, int step) {
  store::ParameterStore& store = job.store();
  for (int b = 0; b < job.model().param_blocks(); ++b) {
    const ParamBlock block{b};
    const at::Tensor& gradient = store.gradient(block);
    for (const shard::Slice& slice :
         shard::whole_slices(job.model()[block], job.layout()[block], store.shard_of(block)))
      fill_normal(stream_key(static_cast<std::uint64_t>(step), job.model()[{block, slice.parameter}].name),
                  static_cast<std::uint64_t>(slice.elements.begin), 1.0F,
                  {gradient.mutable_data_ptr<float>() + slice.offset, static_cast<std::size_t>(slice.elements.size())});
  }
}

TEST_F(Muon, GivesTheSameBitsOfWeightsAndMomentumOnEveryMeshForTheSameGradients) {
  for (const DType type : {DType::fp32, DType::bf16}) {
    std::uint64_t expected = 0;
    for (const Placed& at : meshes())
      on(at, [&](const mpi::Communicator& some) {
        config::RunConfig config = placed(muon(of_model(test::odd_run(files_, 3))), at);
        config.optimizer.clip_norm = 0;
        config.optimizer.newton_schulz_precision =
            type == DType::bf16 ? config::NewtonSchulzPrecision::bf16 : config::NewtonSchulzPrecision::fp32;
        Job* here = nullptr;
        int step = 0, filled = -1;
        // On one thread: all gradients are reduced and none is freed when the first matrices are prepared.
        JobOptions options{.lane_threads = false};
        options.on_op = [&](int op, std::int64_t) {
          if (std::holds_alternative<schedule::PrepareMatrices>(here->schedule().ops[static_cast<std::size_t>(op)]) &&
              std::exchange(filled, step) != step)
            fill_gradients(*here, step);
        };
        Job job(config, some, options);
        here = &job;
        job.store().fill(test::lively_values(test::values_seed));
        data::BatchReader reader(config.data, data::Split::train, config.model.vocab_size, config.run.seed,
                                 job.batch_shape(), {});
        for (; step < 3; ++step) (void)job.step(reader.next(), 5e-4, true);
        // The sum of all shards' digests does not depend on how they are cut.
        const std::uint64_t digest =
            mpi::sum_words(some, job.at().replicate == 0 ? checkpoint::shard_digest(shards_of(job)) : 0);
        if (expected == 0) expected = digest;
        EXPECT_EQ(digest, expected);
      });
  }
}

TEST_F(Muon, HasTheSameBitsInHostMemoryAndWithAnyWindow) {
  for (const DType compute : {DType::fp32, DType::bf16}) {
    const auto found = [&](config::Offload offload, double fraction, Bytes window) {
      config::RunConfig config = muon(of_model(test::odd_run(files_, 4)));
      config.precision.compute = compute;
      if (compute == DType::bf16) config.precision.masters = config::Masters::split;
      config.batch.micro = config.batch.global / (2 * world_.size());
      config.optimizer.window_bytes = window;
      config.memory = {.offload = offload, .offload_fraction = fraction};
      const device::MemoryUse before = device::memory_use();
      device::reset_peaks();
      return test::train_job(config, world_, {.lane_threads = true, .poison = true}, [&](Job& job, int step) {
        if (step < 3) return;
        test::expect_memory(
            before, planner::replay_memory(job.schedule(), job.model(), job.layout(), test::plan_options(config, job)),
            job);
      });
    };
    const test::Outcome expected = found(config::Offload::none, 1, Bytes{1});
    for (const auto& [offload, fraction, window] : {std::tuple{config::Offload::none, 1.0, Bytes{1 << 30}},
                                                    {config::Offload::optimizer, 1.0, Bytes{1}},
                                                    {config::Offload::optimizer, 0.5, Bytes{1 << 30}},
                                                    {config::Offload::parameters, 0.5, Bytes{1}}}) {
      const test::Outcome other = found(offload, fraction, window);
      EXPECT_EQ(other.curve, expected.curve);
      for (std::size_t b = 0; b < expected.masters.size(); ++b)
        EXPECT_TRUE(test::same_bits(other.masters[b], expected.masters[b])) << "block " << b;
    }
  }
}

TEST_F(Muon, ResumesToTheBitAndOnAnotherMesh) {
  const auto leg = [&](const std::string& name, int last) {
    config::RunConfig config = muon(run(name, last));
    config.optimizer.adamw = {"*o_proj*"};
    return config;
  };
  EXPECT_EQ(train(leg("straight", restart_steps), world_.size()), ExitCode::done);
  EXPECT_EQ(train(leg("resumed", restart_steps / 2), world_.size()), ExitCode::done);
  EXPECT_EQ(train(leg("resumed", restart_steps), world_.size()), ExitCode::done);
  EXPECT_EQ(train(leg("moved", restart_steps / 2), 1), ExitCode::done);
  EXPECT_EQ(train(leg("moved", restart_steps), world_.size()), ExitCode::done);
  if (world_.rank() != 0) return;
  expect_same_end(leg("straight", restart_steps), leg("resumed", restart_steps));
  const test::Deviation off =
      test::deviation(curve(leg("moved", restart_steps)), curve(leg("straight", restart_steps)));
  EXPECT_LT(off.loss, loss_tolerance);
  EXPECT_LT(off.grad_norm, norm_tolerance);
  const std::string path = leg("straight", 1).checkpoint.directory + "/" + checkpoint::step_name(restart_steps);
  const checkpoint::Manifest manifest = checkpoint::open_checkpoint(path);
  EXPECT_EQ(checkpoint::format_version(manifest), 4);
  std::map<std::string, bool> takes;
  for (std::size_t p = 0; p < manifest.parameters.size(); ++p)
    takes[manifest.parameters[p].name] = manifest.rules[p] == optimizer::UpdateRule::muon;
  EXPECT_TRUE(takes.at("model.layers.0.self_attn.q_proj.weight"));
  EXPECT_FALSE(takes.at("model.layers.0.self_attn.o_proj.weight"));
  EXPECT_FALSE(takes.at("model.embed_tokens.weight"));
}

TEST_F(Muon, ASwitchOfTheOptimizerKeepsWeightsAndRestartsTheMoments) {
  for (const bool to_muon : {true, false}) {
    const auto leg = [&](int last, bool second) {
      config::RunConfig config = run(to_muon ? "to muon" : "to adamw", last);
      config.data.seq_len = 16;
      return second == to_muon ? muon(config) : config;
    };
    EXPECT_EQ(train(leg(restart_steps / 2, false), world_.size()), ExitCode::done);
    EXPECT_EQ(train(leg(restart_steps, true), world_.size()), ExitCode::done);
    if (world_.rank() != 0) continue;
    EXPECT_EQ(curve(leg(restart_steps, true)).losses.size(), static_cast<std::size_t>(restart_steps));
    const std::string directory = leg(1, true).checkpoint.directory + "/";
    const checkpoint::Manifest end = checkpoint::open_checkpoint(directory + checkpoint::step_name(restart_steps));
    EXPECT_EQ(end.state.updates, restart_steps - restart_steps / 2);
    EXPECT_EQ(end.state.step, restart_steps);
    EXPECT_EQ(checkpoint::format_version(end), to_muon ? 4 : 2);
  }
}

}  // namespace
}  // namespace trireme::train::muon_mpi_test
