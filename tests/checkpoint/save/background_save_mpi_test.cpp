// SPDX-License-Identifier: Apache-2.0
//
// Asynchronous saves: a save has the state at its start, and its end is always reported.
#include <sys/resource.h>

#include "checkpoint/rank_shards.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/checkpoint/load/load.hpp"
#include "trireme/checkpoint/save/background_save.hpp"
#include "trireme/device/allocator.hpp"
#include "trireme/device/memory.hpp"

namespace trireme::checkpoint {
namespace {

class Background : public testing::Test {
 protected:
  static void SetUpTestSuite() { device::install_allocator(); }
  Background() : held_(mesh(), world_.rank()) { fault::set_rank(world_.rank()); }

  [[nodiscard]] mesh::Mesh mesh() const { return {.replicate = 1, .shard = world_.size(), .tensor = 1}; }
  [[nodiscard]] SaveOptions options(std::int64_t base) const {
    return {.directory = directory_.path(), .base_step = base};
  }
  void expect_holds(std::int64_t step) {
    RankShards loaded(mesh(), world_.rank());
    (void)load(world_, directory_.path() + "/" + step_name(step), loaded.shards());
    EXPECT_TRUE(loaded.holds(step)) << step;
  }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
  SharedDirectory directory_{world_};
  RankShards held_;
};

TEST_F(Background, WritesWhatWasThereWhenItBegan) {
  BackgroundSave background(world_);
  for (const std::int64_t step : {10, 20, 30}) {
    held_.fill(step);
    ASSERT_TRUE(background.start(held_.shards(), state_at(step), options(step - 10)));
    held_.fill(-1);  // the training continues
    EXPECT_EQ(background.step(), step);
    const Ended end = background.take();
    EXPECT_FALSE(end.failure);
    EXPECT_EQ(end.saved.path, directory_.path() + "/" + step_name(step));
    EXPECT_GE(end.seconds, end.stall_seconds);
    EXPECT_FALSE(background.started());
    expect_holds(step);
  }
  EXPECT_EQ(list_checkpoints(directory_.path()).size(), 2U);
}

TEST_F(Background, CopyIsChargedToTheHostAndKept) {
  const auto host = [] { return device::memory_use()[device::Space::host].current[device::Category::other].value; };
  const std::int64_t before = host();
  {
    BackgroundSave background(world_);
    for (const std::int64_t step : {10, 20}) {
      ASSERT_TRUE(background.start(held_.shards(), state_at(step), options(step - 10)));
      EXPECT_EQ(host() - before, staging_bytes(held_.shards()).value);
      (void)background.take();
    }
  }
  EXPECT_EQ(host(), before);
}

TEST_F(Background, FailureOnOneRankIsEverybodysAndTheNextOneWorks) {
  BackgroundSave background(world_);
  const int last = world_.size() - 1;
  for (const std::string point : {"ckpt.stage", "ckpt.write", "ckpt.sync", "ckpt.close"}) {
    // The step of the save, not the current step of the training.
    fault::arm(point + ":throw:" + std::to_string(last) + ":9");
    fault::set_step(12);
    held_.fill(10);
    ASSERT_TRUE(background.start(held_.shards(), state_at(10), options(0)));
    const Ended end = background.take();
    fault::arm("");
    ASSERT_TRUE(end.failure) << point;
    try {
      std::rethrow_exception(end.failure);
    } catch (const WriteError& error) {
      EXPECT_NE(std::string(error.what()).find(point), std::string::npos) << error.what();
    }
    EXPECT_TRUE(list_checkpoints(directory_.path()).empty());
    MPI_Barrier(world_.handle());
  }
  held_.fill(20);
  ASSERT_TRUE(background.start(held_.shards(), state_at(20), options(0)));
  EXPECT_FALSE(background.take().failure);
  expect_holds(20);
}

TEST_F(Background, WithoutMemoryOrAThreadOnOneRankNoRankBegins) {
  const std::int64_t before = device::memory_use()[device::Space::host].total.value;
  for (const std::string fault : {"ckpt.memory:nan:", "ckpt.thread:throw:"}) {
    BackgroundSave background(world_);
    fault::arm(fault + std::to_string(world_.size() - 1));
    EXPECT_FALSE(background.start(held_.shards(), state_at(10), options(0))) << fault;
    fault::arm("");
    EXPECT_FALSE(background.started());
    EXPECT_FALSE(background.start(held_.shards(), state_at(10), options(0))) << "it is not tried again";
    EXPECT_EQ(device::memory_use()[device::Space::host].total.value, before);
  }
  EXPECT_GT(available_host_memory().value, 0);
}

// Gradients and activations are free while a copy is made, and are allocated again in the next step.
TEST_F(Background, CopyLeavesRoomForTheNextStep) {
  ASSERT_TRUE(device::can_map(Bytes{512 << 20}));
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &limit), 0);
  const device::ProcessSize mapped = device::process_memory().mapped;
  ASSERT_GT((mapped.peak - mapped.current).value, 256 << 20);
  BackgroundSave background(world_);
  const rlimit bounded{.rlim_cur = static_cast<rlim_t>(mapped.peak.value - (128 << 20)), .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &bounded), 0);
  const bool started = background.start(held_.shards(), state_at(10), options(0));
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  EXPECT_FALSE(started);
}

TEST_F(Background, EndsBeforeItsOwner) {
  {
    BackgroundSave background(world_);
    held_.fill(10);
    ASSERT_TRUE(background.start(held_.shards(), state_at(10), options(0)));
  }
  MPI_Barrier(world_.handle());
  expect_holds(10);
}

}  // namespace
}  // namespace trireme::checkpoint
