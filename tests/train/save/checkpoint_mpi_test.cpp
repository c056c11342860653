// SPDX-License-Identifier: Apache-2.0
//
// Runs that stop and go on: on the same mesh bit for bit. On other meshes: meshes_mpi_test.
//
// timeout: 600
//
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "restart.hpp"
#include "support/jobs.hpp"
#include "train/setup/gemm.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/mpi/collective_try.hpp"
#include "trireme/supervise/stop_signals.hpp"
#include "trireme/train/run.hpp"
#include "trireme/train/save/checkpointing.hpp"
#include "trireme/train/setup/threads.hpp"
#include "trireme/train/setup/tuned_settings.hpp"

namespace trireme::train::checkpoint_mpi_test {
namespace {

namespace fs = std::filesystem;
constexpr int steps = restart_steps;

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

/// The steps before a restart decide whether a later one is a spike.
TEST_F(Restart, KeepsTheWindowOfSpikes) {
  constexpr int last = 74, spike = 70;
  const auto spiky = [&](const std::string& name, int end) {
    config::RunConfig config = run(name, end);
    config.model.layers = 1;
    config.batch = {.global = 12, .micro = 12 / world_.size()};
    config.data.shuffle = false;
    config.data.train =
        files_.sources_with_constants(last * config.batch.global, config.data.seq_len,
                                      [&](std::int64_t sample) { return sample / config.batch.global == spike; });
    config.lr = {.end_step = last};
    config.optimizer.lr = 1e-5;
    config.train.skip_spikes = true;
    return config;
  };
  const config::RunConfig unbroken = spiky("unbroken", last);
  (void)train(unbroken, world_.size());
  config::RunConfig broken = spiky("broken", 66);
  (void)train(broken, world_.size());
  broken.train.steps = last;
  EXPECT_EQ(train(broken, world_.size()), ExitCode::done);
  EXPECT_EQ(curve(unbroken), curve(broken));
  EXPECT_EQ(tensors(unbroken, last), tensors(broken, last));
  config::RunConfig divided = spiky("divided", 66);
  (void)train(divided, 1);
  divided.train.steps = last;
  divided.batch.micro = 12 / world_.size();
  (void)train(divided, world_.size());
  for (const config::RunConfig& config : {unbroken, broken, divided}) {
    const std::string path = config.checkpoint.directory + "/" + checkpoint::step_name(last);
    const checkpoint::State state = checkpoint::open_checkpoint(path).state;
    EXPECT_EQ(state.skipped, 1) << config.run.output;
    EXPECT_EQ(state.updates, last - 1) << config.run.output;
    EXPECT_EQ(state.spikes.losses.size(), static_cast<std::size_t>(last)) << "skipped steps enter the window";
    std::ifstream file(config.run.output + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const auto row = nlohmann::json::parse(line);
      EXPECT_EQ(row.at("skipped"), row.at("step") == spike + 1) << line;
      EXPECT_EQ(row.at("spike_score").is_null(), row.at("step") <= 64) << line;
      if (row.at("step") == spike + 1) {
        EXPECT_GT(row.at("spike_score"), 6.0);
      }
    }
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

TEST_F(Restart, ASignalOnOneRankSavesOnAllAndRequestsARequeue) {
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

/// Stores a choice in the cache of this machine for `agree_on_gemm`, with the threads of `config`.
void keep_gemm_choice(const mpi::Communicator& world, const config::RunConfig& config, const std::string& cache,
                      const std::string& choice) {
  setenv("TRIREME_CACHE", cache.c_str(), 1);
  (void)use_threads(mpi::probe_topology(world), config.device.threads);
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
  keep_gemm_choice(world_, unbroken, root_ + "/cache", "fp32=blocked,blocked,blocked bf16=at,at,at");
  (void)train(unbroken, world_.size());
  (void)train(broken, world_.size());
  keep_gemm_choice(world_, unbroken, root_ + "/cache", "fp32=at,at,at bf16=at,at,at");
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
  // Texts of builds that had no "pairs" mean what they did.
  checkpoint::Metadata older = current_tuned_settings(1);
  for (auto& [key, value] : older)
    if (key == "gemm") value.resize(value.find(" pairs="));
  EXPECT_EQ(restore_tuned_settings(world_, older, 1), std::vector<std::string>{});
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
  // A signal after the jump: the same command line resumes from there, not from the older one again.
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
    EXPECT_THROW((void)checkpoints.begin(), mpi::CollectiveError);
  }
  config.checkpoint.data = config::DataOnResume::restart;
  (void)train(config, world_.size());
  const auto manifest = checkpoint::open_checkpoint(config.checkpoint.directory + "/step-00000003");
  EXPECT_EQ(manifest.state.samples, config.batch.global);
  EXPECT_EQ(manifest.state.updates, 3);
}

TEST_F(Restart, LengthsInTokensAreRefusedWithAnotherBatch) {
  config::RunConfig config = run("run", 2);
  config.train.tokens = 2 * config.batch.global * config.data.seq_len;
  (void)train(config, world_.size());
  const auto begin = [&] {
    Job job(config, world_, {});
    Checkpointing checkpoints(job, world_, 1);
    return checkpoints.begin();
  };
  EXPECT_EQ(begin().step, 2);
  config.batch.global *= 2;
  EXPECT_THROW((void)begin(), mpi::CollectiveError);
  config.train.tokens.reset();
  EXPECT_EQ(begin().step, 2);
}

TEST_F(Restart, OfAFinishedRunDoesNothing) {
  const config::RunConfig config = run("run", 2);
  (void)train(config, world_.size());
  EXPECT_EQ(train(config, world_.size()), ExitCode::done);
  EXPECT_EQ(curve(config).losses.size(), 2U);
}

}  // namespace
}  // namespace trireme::train::checkpoint_mpi_test

// Fault, plans: another batch at a resume with lengths in tokens -> exit code 4
