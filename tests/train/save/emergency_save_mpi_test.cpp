// SPDX-License-Identifier: Apache-2.0
//
// The last finished step is saved within the next one by all ranks or by none.
// ranks: 1 3
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "train/save/emergency_save.hpp"
#include "trireme/mpi/communicator.hpp"
#include "trireme/mpi/gather.hpp"

namespace trireme::train::emergency_save_mpi_test {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds at_once{0};

class Emergency : public testing::Test {
 protected:
  void write(const checkpoint::State& state) {
    begun_ = true;
    std::this_thread::sleep_for(milliseconds(50));
    written_.push_back(state.step);
    ended_ = true;
  }
  /// Offers `step`, or nothing for 0.
  void offer(std::int64_t step) {
    checkpoint::State state;
    state.step = step;
    if (step > 0) save_.offer(state);
  }
  static void await(const std::atomic<bool>& flag) {
    while (!flag) std::this_thread::sleep_for(milliseconds(1));  // else the test's own limit ends it
  }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
  int last_ = world_.size() - 1;
  std::atomic<bool> begun_ = false, ended_ = false;
  std::vector<std::int64_t> written_;
  EmergencySave save_{world_, [this](const checkpoint::State& state) { write(state); }, at_once};
};

TEST_F(Emergency, WritesOnceWhatAllRanksOfferAndUpdatesWaitForIt) {
  offer(5);
  save_.request();
  save_.request();
  await(begun_);
  save_.withdraw();
  EXPECT_TRUE(ended_) << "an update began while masters were written";
  offer(6);
  save_.request();
  save_.withdraw();
  save_.close();
  EXPECT_EQ(written_, std::vector<std::int64_t>{5});
}

TEST_F(Emergency, WaitsUntilAllRanksAreInTheSameStep) {
  offer(world_.rank() == last_ ? 4 : 5);
  save_.request();
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_FALSE(world_.size() > 1 && begun_);
  save_.withdraw();
  (void)mpi::any_rank(world_, false);
  offer(world_.rank() == last_ ? 5 : 0);  // in its updates, or after a step
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_FALSE(world_.size() > 1 && begun_);
  save_.withdraw();
  if (world_.size() == 1) return save_.close();  // it had its turn
  offer(6);
  await(ended_);
  save_.withdraw();
  save_.close();
  EXPECT_EQ(written_, std::vector<std::int64_t>{6});
}

TEST_F(Emergency, WritesNothingWhereOneRankIsNotAsked) {
  offer(5);
  if (world_.rank() != last_) save_.request();
  std::this_thread::sleep_for(milliseconds(100));
  save_.withdraw();
  save_.close();
  EXPECT_TRUE(written_.empty());
}

TEST_F(Emergency, WritesNothingAfterItsEnd) {
  save_.close();
  offer(5);
  save_.request();
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_TRUE(written_.empty());
}

}  // namespace
}  // namespace trireme::train::emergency_save_mpi_test
