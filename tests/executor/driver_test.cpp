// SPDX-License-Identifier: Apache-2.0
//
// A driver runs any schedule without tensors: a fake runner computes with numbers that stand for expressions.
#include "trireme/executor/driver.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "../schedule/models.hpp"
#include "../schedule/pipeline/pipelines.hpp"
#include "../schedule/shuffle.hpp"
#include "trireme/schedule/access.hpp"
#include "trireme/schedule/passes/build.hpp"
#include "trireme/schedule/verify/verify.hpp"

namespace trireme::executor {
namespace {

using schedule::Need;
using schedule::Resource;
using schedule::Schedule;

/// Runs ops on numbers: what an op writes depends on what it reads, so that another order shows in the values.
class FakeRunner {
 public:
  FakeRunner(const Schedule& schedule, const model::Model& model) : accesses_(schedule::accesses(schedule, model)) {}

  void run(std::span<const int> ops) {
    for (const int op : ops) {
      const std::scoped_lock lock(mutex_);
      const schedule::Access& access = accesses_[static_cast<std::size_t>(op)];
      std::uint64_t value = static_cast<std::uint64_t>(op) + 1;
      for (const Resource& read : access.reads) value = (value ^ values_[read]) * 0x100000001b3U;
      for (const Resource& written : access.writes) values_[written] = value;
      ran_.push_back(op);
    }
  }
  [[nodiscard]] const std::map<Resource, std::uint64_t>& values() const { return values_; }
  [[nodiscard]] const std::vector<int>& ran() const { return ran_; }

 private:
  std::vector<schedule::Access> accesses_;
  std::mutex mutex_;
  std::map<Resource, std::uint64_t> values_;
  std::vector<int> ran_;
};

model::Model small(bool tensor) {
  return schedule::testing::llama(2, false, {.rank = 0, .ranks = tensor ? 2 : 1, .sequence_parallel = tensor});
}

Schedule shuffled(const model::Model& model, unsigned seed) {
  return schedule::build_step(
      model, schedule::testing::shuffle_forwards(schedule::compute_order(model, 2), seed),
      {.recompute = {.mode = config::Recompute::block}, .offload = {.what = config::Offload::optimizer}});
}

std::map<Resource, std::uint64_t> values_after(const Schedule& schedule, const model::Model& model, bool lane_threads,
                                               int steps) {
  FakeRunner fake(schedule, model);
  Driver driver(schedule, schedule::needs(schedule, model), lane_threads,
                {.run = [&](std::span<const int> ops, std::int64_t) { fake.run(ops); }});
  for (int step = 0; step < steps; ++step) driver.run(step, step + 1 == steps);
  EXPECT_EQ(fake.ran().size(), schedule.ops.size() * static_cast<std::size_t>(steps));
  return fake.values();
}

TEST(Driver, SeparatesMessagesOfPipelineRanksFromOtherWaiting) {
  const schedule::testing::Lists lists =
      schedule::testing::lists_of(schedule::testing::pipeline(config::PipelineKind::one_f_one_b, 2, 2));
  const Schedule& list = lists.lists[1];
  const auto is_message = [&](int op) {
    const schedule::Lane lane = schedule::lane_of(list.ops[static_cast<std::size_t>(op)]);
    return lane == schedule::Lane::send || lane == schedule::Lane::receive;
  };
  constexpr auto one = std::chrono::milliseconds(2);
  int messages = 0, others = 0;
  double at_the_norm = -1;
  std::optional<Driver> driver;
  const auto run = [&](std::span<const int> ops, std::int64_t) {
    const int op = ops.front();
    if (std::holds_alternative<schedule::ClipNorm>(list.ops[static_cast<std::size_t>(op)]))
      at_the_norm = driver->idle().pipeline;
    if (schedule::lane_of(list.ops[static_cast<std::size_t>(op)]) == schedule::Lane::compute) return;
    ++(is_message(op) ? messages : others);
    std::this_thread::sleep_for(one);
  };
  driver.emplace(list, schedule::needs(list, lists.parts[1].model), false, Runner{.run = run});
  const Idle idle = driver->run(0, true);
  const auto at_least = [&](int ops) { return std::chrono::duration<double>(one).count() * ops; };
  EXPECT_EQ(messages, 4);  // two microbatches, there and back
  EXPECT_GT(others, 0);
  EXPECT_GE(idle.pipeline, at_least(messages));
  EXPECT_GE(idle.collectives, at_least(others));
  EXPECT_GE(at_the_norm, at_least(messages)) << "all messages come before the norm";
  EXPECT_LE(at_the_norm, idle.pipeline);
}

TEST(Driver, GivesTheSameValuesOnLanesAsInOrder) {
  for (const bool tensor : {false, true})
    for (unsigned seed = 1; seed <= 3; ++seed) {
      const model::Model model = small(tensor);
      const Schedule schedule = shuffled(model, seed);
      EXPECT_EQ(values_after(schedule, model, true, 4), values_after(schedule, model, false, 4)) << "seed " << seed;
    }
}

/// Whether `to` begins while `from`, of the same step, has not ended: with the needs that are given.
bool begins_early(const Schedule& schedule, const std::vector<Need>& needs, const Need& need,
                  std::chrono::milliseconds patience) {
  std::mutex mutex;
  std::condition_variable changed;
  bool begun = false, early = false;
  Driver driver(schedule, needs, true, {.run = [&](std::span<const int> ops, std::int64_t) {
                  std::unique_lock lock(mutex);
                  if (ops.front() == need.to) {
                    begun = true;
                    changed.notify_all();
                  }
                  if (ops.front() == need.from) early = changed.wait_for(lock, patience, [&] { return begun; });
                }});
  driver.run(0, true);
  return early;
}

TEST(Driver, WaitsForEveryNeedBetweenLanesAndForNothingWithoutIt) {
  const model::Model model = small(true);
  const Schedule schedule = schedule::build_step(model, 1, {});
  const std::vector<Need> all = schedule::needs(schedule, model);
  const auto lane = [&](int op) { return schedule::lane_of(schedule.ops[static_cast<std::size_t>(op)]); };
  int tried = 0;
  for (std::size_t i = 0; i < all.size(); i += 3) {
    const Need& need = all[i];
    if (need.distance != 0 || lane(need.from) == lane(need.to)) continue;
    std::vector<Need> kept;
    for (const Need& other : all)
      if (other.from != need.from || other.to != need.to || other.distance != 0) kept.push_back(other);
    if (schedule::verify_needs(schedule, model, kept).empty()) continue;  // others imply it
    EXPECT_FALSE(begins_early(schedule, all, need, std::chrono::milliseconds(1)));
    EXPECT_TRUE(begins_early(schedule, kept, need, std::chrono::seconds(20)))
        << "op " << need.to << " waits for op " << need.from << " without a need";
    ++tried;
  }
  EXPECT_GT(tried, 10);
}

TEST(Driver, LetsLanesRunAheadIntoTheNextStepUnlessItIsTheLast) {
  const model::Model model = small(false);
  const Schedule schedule = schedule::build_step(model, 1, {});
  for (const bool last : {false, true}) {
    std::atomic<int> of_next_step = 0;
    Driver driver(schedule, schedule::needs(schedule, model), true,
                  {.run = [&](std::span<const int>, std::int64_t step) { of_next_step += step == 1; }});
    driver.run(0, last);
    for (int i = 0; i < (last ? 20 : 20'000) && of_next_step == 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(of_next_step > 0, !last);
  }
}

TEST(Driver, HandsOverTheOpsThatTheRunnerRequests) {
  const model::Model model = small(false);
  const Schedule schedule = schedule::build_step(model, 1, {});
  std::vector<int> pair;  // the first two ops of the compute lane
  for (int op = 0; pair.size() < 2; ++op)
    if (schedule::lane_of(schedule.ops[static_cast<std::size_t>(op)]) == schedule::Lane::compute) pair.push_back(op);
  FakeRunner fake(schedule, model);
  int together = 0;
  Driver driver(schedule, schedule::needs(schedule, model), false,
                {.run =
                     [&](std::span<const int> ops, std::int64_t) {
                       together += ops.size() == 2;
                       fake.run(ops);
                     },
                 .together = [&](int op, std::int64_t) { return op == pair[0] || op == pair[1] ? &pair : nullptr; }});
  driver.run(0, true);
  EXPECT_EQ(together, 1);
  EXPECT_EQ(fake.ran().size(), schedule.ops.size());
}

TEST(Driver, ReportsExceptionsOfARunnerOnAnyLane) {
  const model::Model model = small(false);
  const Schedule schedule = schedule::build_step(model, 1, {});
  const int last = static_cast<int>(schedule.ops.size()) - 1;
  ASSERT_EQ(schedule::lane_of(schedule.ops[static_cast<std::size_t>(last)]), schedule::Lane::compute);
  std::atomic<int> told = 0;
  Driver driver(schedule, schedule::needs(schedule, model), true,
                {.run =
                     [&](std::span<const int> ops, std::int64_t) {
                       if (ops.front() == last) throw std::runtime_error("broken");
                     },
                 .on_exception = [&] { ++told; }});
  EXPECT_THROW((void)driver.run(0, true), std::runtime_error);
  EXPECT_EQ(told, 1);
}

}  // namespace
}  // namespace trireme::executor
