// SPDX-License-Identifier: Apache-2.0
//
// Runs that stop and go on: on the same mesh bit for bit, on any other at the next sample.
//
// timeout: 600
//
#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "support/jobs.hpp"
#include "train/setup/gemm.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/checkpoint/load/load.hpp"
#include "trireme/mpi/together.hpp"
#include "trireme/supervise/stop_signals.hpp"
#include "trireme/train/run.hpp"
#include "trireme/train/save/checkpointing.hpp"
#include "trireme/train/setup/tuned_settings.hpp"

namespace trireme::train::checkpoint_mpi_test {
namespace {

namespace fs = std::filesystem;
constexpr int steps = 6;

class Restart : public testing::Test {
 protected:
  /// A run of `last` steps of six, in a directory of its own; on the last line of a terminal nobody looks.
  [[nodiscard]] config::RunConfig run(const std::string& name, int last) const {
    config::RunConfig config = test::odd_run(files_, last);
    config.lr.end_step = steps;
    config.run.output = root_ + "/" + name;
    config.checkpoint.directory = config.run.output + "/checkpoints";
    config.data.shuffle = true;
    return config;
  }

  /// Trains on the first `ranks` ranks.
  ExitCode train(config::RunConfig config, int ranks, int replicate = 1, int tensor = 1) const {
    config.mesh.replicate = replicate;
    config.mesh.tensor = tensor;
    const mpi::Communicator some = world_.split(world_.rank() < ranks ? 0 : 1, world_.rank());
    const ExitCode code = world_.rank() < ranks ? run_training(config, some) : ExitCode::done;
    MPI_Barrier(world_.handle());
    return code;
  }

  /// Losses and norms by step; every step has to be there once.
  [[nodiscard]] static test::Curve curve(const config::RunConfig& config) {
    test::Curve curve;
    std::ifstream file(config.run.output + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const auto row = nlohmann::json::parse(line);
      curve.losses.push_back(row.at("loss"));
      curve.grad_norms.push_back(row.at("grad_norm"));
      EXPECT_EQ(row.at("step"), curve.losses.size());
    }
    return curve;
  }

  /// Everything in a checkpoint, in full.
  [[nodiscard]] static std::map<std::string, std::vector<float>> tensors(const config::RunConfig& config, int step) {
    const std::string path = config.checkpoint.directory + "/" + checkpoint::step_name(step);
    checkpoint::Reader reader(path, checkpoint::open_checkpoint(path));
    std::map<std::string, std::vector<float>> all;
    for (const checkpoint::Quantity quantity : checkpoint::all_quantities)
      for (const checkpoint::SavedParameter& parameter : reader.manifest().parameters) {
        auto& values = all[std::string(to_text(quantity)) + "/" + parameter.name];
        values.resize(static_cast<std::size_t>(parameter.elements()));
        reader.read(quantity, parameter.name, {.length = parameter.elements()}, values);
      }
    return all;
  }

  static void expect_same_end(const config::RunConfig& one, const config::RunConfig& other) {
    EXPECT_EQ(curve(one), curve(other));
    EXPECT_EQ(curve(one).losses.size(), static_cast<std::size_t>(steps));
    const auto a = tensors(one, steps);
    const auto b = tensors(other, steps);
    ASSERT_EQ(a.size(), b.size());
    for (const auto& [name, values] : a)
      EXPECT_EQ(std::memcmp(values.data(), b.at(name).data(), 4 * values.size()), 0) << name;
  }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
  test::TokenFiles files_{world_, 257};
  const test::SharedDirectory directory_{world_};
  const std::string& root_ = directory_.path();
};

TEST_F(Restart, OnTheSameMeshContinuesBitForBit) {
  const int replicate = world_.size() == 4 ? 2 : 1;
  for (const DType compute : {DType::fp32, DType::bf16}) {
    const std::string dtype(to_text(compute));
    config::RunConfig unbroken = run("unbroken-" + dtype, steps);
    config::RunConfig broken = run("broken-" + dtype, 4);
    unbroken.precision.compute = broken.precision.compute = compute;
    broken.checkpoint.every = 2;
    (void)train(unbroken, world_.size(), replicate);
    (void)train(broken, world_.size(), replicate);
    broken.train.steps = steps;
    EXPECT_EQ(train(broken, world_.size(), replicate), ExitCode::done);
    expect_same_end(unbroken, broken);
    EXPECT_EQ(checkpoint::list_checkpoints(broken.checkpoint.directory).size(), 2U);
  }
}

TEST_F(Restart, ADamagedCheckpointFallsBackToTheOneBefore) {
  const config::RunConfig unbroken = run("unbroken", steps);
  config::RunConfig broken = run("broken", 4);
  broken.checkpoint.every = 2;
  (void)train(unbroken, world_.size());
  (void)train(broken, world_.size());
  if (world_.rank() == 0) {
    const std::string shard = broken.checkpoint.directory + "/step-00000004/" + checkpoint::shard_path(0);
    std::fstream(shard, std::ios::in | std::ios::out).seekp(8192).put('\x55').put('\xaa');
    fs::create_directories(broken.checkpoint.directory + "/.step-00000005.partial/shards");
  }
  MPI_Barrier(world_.handle());
  broken.train.steps = steps;
  (void)train(broken, world_.size());
  expect_same_end(unbroken, broken);
  EXPECT_TRUE(fs::exists(broken.checkpoint.directory + "/set-aside-1-step-00000004"));
  EXPECT_FALSE(fs::exists(broken.checkpoint.directory + "/.step-00000005.partial"));
}

TEST_F(Restart, OnAnotherMeshContinuesAtTheNextSample) {
  if (world_.size() < 4) GTEST_SKIP() << "needs 4 ranks";
  const config::RunConfig unbroken = run("unbroken", steps);
  (void)train(unbroken, 4);
  for (const int replicate : {1, 2})
    for (const int ranks : {1, 2, 3, 4}) {
      config::RunConfig broken = run("broken-" + std::to_string(replicate) + "-" + std::to_string(ranks), 2);
      (void)train(broken, 4, replicate);
      broken.train.steps = 4;
      (void)train(broken, ranks);
      broken.train.steps = steps;
      (void)train(broken, 4, replicate);
      const test::Deviation off = test::deviation(curve(broken), curve(unbroken));
      EXPECT_LT(off.loss, 1e-6) << replicate << " replicas, then " << ranks << " ranks";
      EXPECT_LT(off.grad_norm, 1e-5) << replicate << " replicas, then " << ranks << " ranks";
    }
}

TEST_F(Restart, AtAnotherTensorSizeContinuesAtTheNextSample) {
  if (world_.size() < 4) GTEST_SKIP() << "needs 4 ranks";
  const config::RunConfig unbroken = run("unbroken", steps);
  (void)train(unbroken, 4);
  for (const std::int64_t ranks_per_file : {1, 2}) {
    config::RunConfig broken = run("broken-" + std::to_string(ranks_per_file), 2);
    broken.checkpoint.ranks_per_file = ranks_per_file;
    broken.batch.micro = 2;
    (void)train(broken, 4, 2, 2);
    broken.train.steps = 4;
    (void)train(broken, 2);
    broken.train.steps = steps;
    broken.batch.micro = 4;
    (void)train(broken, 4, 1, 2);
    const test::Deviation off = test::deviation(curve(broken), curve(unbroken));
    EXPECT_LT(off.loss, 1e-6) << ranks_per_file;
    EXPECT_LT(off.grad_norm, 1e-5) << ranks_per_file;
  }
}

/// Part of a run: a mesh, and the pipeline in it.
struct Leg {
  config::Mesh mesh;
  config::Pipeline pipeline{};
  std::int64_t micro = 1, ranks_per_file = 1;
};

TEST_F(Restart, WithAnotherPipelineContinuesAtTheNextSample) {
  if (world_.size() < 4) GTEST_SKIP() << "needs 4 ranks";
  using enum config::PipelineKind;
  constexpr int last = 10, change = 5;
  const auto deep = [&](const std::string& name) {
    config::RunConfig config = run(name, last);
    config.lr.end_step = last;
    config.model.layers = 4;
    config.model.tie_embeddings = true;
    config.optimizer.lr = 5e-4;
    config.optimizer.eps = 1e-6;  // a gradient that is all rounding makes no step of its own
    return config;
  };
  const auto train_leg = [&](config::RunConfig config, const Leg& leg, int until) {
    config.mesh = leg.mesh;
    config.pipeline = leg.pipeline;
    config.batch.micro = leg.micro;
    config.checkpoint.ranks_per_file = leg.ranks_per_file;
    config.train.steps = until;
    EXPECT_EQ(run_training(config, world_), ExitCode::done);
    MPI_Barrier(world_.handle());
  };
  const Leg plain{.mesh = {}};
  const Leg two{.mesh = {.replicate = 2, .pipeline = 2}, .micro = 6};
  const Leg four{.mesh = {.pipeline = 4}, .pipeline = {.schedule = gpipe}, .micro = 12};
  const Leg loop{.mesh = {.pipeline = 2}, .pipeline = {.schedule = interleaved}, .micro = 6, .ranks_per_file = 2};
  const Leg tensor{.mesh = {.tensor = 2, .pipeline = 2}, .micro = 8};
  const config::RunConfig unbroken = deep("unbroken");
  train_leg(unbroken, plain, last);
  const std::vector<std::pair<Leg, Leg>> changes{
      {plain, two}, {two, plain}, {four, loop}, {loop, tensor}, {tensor, four}};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const config::RunConfig broken = deep("broken-" + std::to_string(i));
    train_leg(broken, changes[i].first, change);
    train_leg(broken, changes[i].second, last);
    const test::Deviation off = test::deviation(curve(broken), curve(unbroken));
    EXPECT_LT(off.loss, 1e-6) << i;
    EXPECT_LT(off.grad_norm, 1e-5) << i;
  }
  // The same pipeline goes on bit for bit, whether what was saved was copied first or not.
  const config::RunConfig whole = deep("whole");
  config::RunConfig halves = deep("halves");
  halves.checkpoint.every = 2;
  train_leg(whole, two, steps);
  train_leg(halves, two, 3);
  train_leg(halves, two, steps);
  expect_same_end(whole, halves);
}

TEST_F(Restart, WithSequencesDividedOtherwiseContinuesAtTheNextSample) {
  if (world_.size() < 4) GTEST_SKIP() << "needs 4 ranks";
  const auto divided = [&](const std::string& name) {
    config::RunConfig config = run(name, steps);
    config.data.seq_len = 16;
    return config;
  };
  const auto train_leg = [&](config::RunConfig config, const Leg& leg, int until) {
    config.mesh = leg.mesh;
    config.batch.micro = leg.micro;
    config.checkpoint.ranks_per_file = leg.ranks_per_file;
    config.train.steps = until;
    EXPECT_EQ(run_training(config, world_), ExitCode::done);
    MPI_Barrier(world_.handle());
  };
  const Leg plain{.mesh = {}};
  const Leg two{.mesh = {.context = 2}, .micro = 6, .ranks_per_file = 2};
  const Leg replicated{.mesh = {.replicate = 2, .context = 2}, .micro = 4};
  const Leg four{.mesh = {.context = 4}, .micro = 12};
  const Leg tensor{.mesh = {.tensor = 2, .context = 2}, .micro = 8};
  const config::RunConfig unbroken = divided("unbroken");
  train_leg(unbroken, plain, steps);
  const std::vector<std::pair<Leg, Leg>> changes{{plain, two}, {two, replicated}, {four, tensor}, {tensor, plain}};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const config::RunConfig broken = divided("broken-" + std::to_string(i));
    train_leg(broken, changes[i].first, 3);
    train_leg(broken, changes[i].second, steps);
    const test::Deviation off = test::deviation(curve(broken), curve(unbroken));
    EXPECT_LT(off.loss, 1e-6) << i;
    EXPECT_LT(off.grad_norm, 1e-5) << i;
  }
  const config::RunConfig whole = divided("whole");
  const config::RunConfig halves = divided("halves");
  train_leg(whole, replicated, steps);
  train_leg(halves, replicated, 3);
  train_leg(halves, replicated, steps);
  expect_same_end(whole, halves);
}

TEST_F(Restart, ASignalOnOneRankSavesOnAllAndAsksForARequeue) {
  const config::RunConfig unbroken = run("unbroken", steps);
  const config::RunConfig broken = run("broken", steps);
  (void)train(unbroken, world_.size());
  {
    const supervise::StopSignals early;  // before the run installs its own: it begins anew, with no signal noted
    std::raise(SIGUSR1);
    EXPECT_EQ(supervise::StopSignals::received(), SIGUSR1);
  }
  fault::arm("step.begin:usr1:0:2");
  const ExitCode first = train(broken, world_.size());
  fault::arm("");
  EXPECT_EQ(first, ExitCode::requeue);
  EXPECT_EQ(checkpoint::list_checkpoints(broken.checkpoint.directory).front().step, 4);
  EXPECT_EQ(train(broken, world_.size()), ExitCode::done);
  expect_same_end(unbroken, broken);
}

/// What `agree_on_gemm` finds kept on this machine from now on.
void keep_gemm_choice(const mpi::Communicator& world, const std::string& cache, const std::string& choice) {
  setenv("TRIREME_CACHE", cache.c_str(), 1);
  if (world.rank() == 0) {
    fs::create_directories(fs::path(gemm_choice_path()).parent_path());
    std::ofstream(gemm_choice_path()) << choice << '\n';
  }
  MPI_Barrier(world.handle());
}

TEST_F(Restart, MultipliesWithTheLibrariesOfTheRunBefore) {
  const config::RunConfig unbroken = run("unbroken", steps);
  const config::RunConfig other = run("other", steps);
  config::RunConfig broken = run("broken", 3);
  keep_gemm_choice(world_, root_ + "/cache", "fp32=blocked,blocked,blocked bf16=at,at,at");
  (void)train(unbroken, world_.size());
  (void)train(broken, world_.size());
  keep_gemm_choice(world_, root_ + "/cache", "fp32=at,at,at bf16=at,at,at");
  (void)train(other, world_.size());
  EXPECT_NE(curve(other), curve(unbroken)) << "other libraries, the same bits: this test shows nothing";
  broken.train.steps = steps;
  (void)train(broken, world_.size());
  unsetenv("TRIREME_CACHE");
  expect_same_end(unbroken, broken);
  const checkpoint::Manifest manifest =
      checkpoint::open_checkpoint(broken.checkpoint.directory + "/" + checkpoint::step_name(steps));
  EXPECT_EQ(checkpoint::differences(manifest.state.tuned_settings, current_tuned_settings(1)),
            std::vector<std::string>{});
}

TEST_F(Restart, PassesOverDataFromAnOlderCheckpointOn) {
  config::RunConfig config = run("run", 4);
  config.checkpoint.every = 2;
  (void)train(config, world_.size());
  const std::int64_t batch = config.batch.global;
  config.checkpoint.resume = config.checkpoint.directory + "/step-00000002";
  config.data.skip_to = 5 * batch;
  config.train.steps = steps;
  const auto state = [&](int step) {
    return checkpoint::open_checkpoint(config.checkpoint.directory + "/" + checkpoint::step_name(step)).state;
  };
  // A signal after the jump: the same command line goes on from where it stopped, not from the older one again.
  fault::arm("step.begin:usr1:0:2");
  EXPECT_EQ(train(config, world_.size()), ExitCode::requeue);
  fault::arm("");
  EXPECT_EQ(state(4).samples, 7 * batch);
  EXPECT_EQ(train(config, world_.size()), ExitCode::done);
  EXPECT_EQ(state(steps).samples, 9 * batch);
  EXPECT_EQ(state(steps).skipped_samples,
            (std::vector<checkpoint::SkippedSamples>{{.step = 2, .first = 2 * batch, .end = 5 * batch}}));
  EXPECT_TRUE(fs::exists(config.checkpoint.directory + "/set-aside-1-step-00000004"));
  EXPECT_EQ(curve(config).losses.size(), static_cast<std::size_t>(steps));
  MPI_Barrier(world_.handle());

  // Nothing lies between: the run without a jump that begins at the sample gives the same losses from there on.
  config::RunConfig plain = run("plain", 2);
  (void)train(plain, world_.size());
  plain.data.skip_to = 5 * batch;
  plain.train.steps = steps;
  (void)train(plain, world_.size());
  expect_same_end(plain, config);
}

TEST_F(Restart, OtherDataAreRefusedUnlessAskedFor) {
  config::RunConfig config = run("run", 2);
  (void)train(config, world_.size());
  config.train.steps = 3;
  config.data.train.pop_back();
  {
    Job job(config, world_, {});
    Checkpointing checkpoints(job, world_, 1);
    EXPECT_THROW((void)checkpoints.begin(), mpi::SharedError);
  }
  config.checkpoint.data = config::DataOnResume::restart;
  (void)train(config, world_.size());
  const auto manifest = checkpoint::open_checkpoint(config.checkpoint.directory + "/step-00000003");
  EXPECT_EQ(manifest.state.samples, config.batch.global);
  EXPECT_EQ(manifest.state.updates, 3);
}

TEST_F(Restart, OfAFinishedRunDoesNothing) {
  const config::RunConfig config = run("run", 2);
  (void)train(config, world_.size());
  EXPECT_EQ(train(config, world_.size()), ExitCode::done);
  EXPECT_EQ(curve(config).losses.size(), 2U);
}

}  // namespace
}  // namespace trireme::train::checkpoint_mpi_test
