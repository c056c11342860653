// SPDX-License-Identifier: Apache-2.0
//
// Nothing among the needs is for show: with all of them no lane can be so slow that a bit changes; without one kind of
// them some slow lane changes the result.
//
// ranks: 2
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <variant>

#include "steps.hpp"

namespace trireme::executor {
namespace {

using schedule::Lane;
using schedule::Need;
using schedule::Reason;

constexpr int count = 4;

/// The lane that sleeps before every one of its ops.
using Slow = std::optional<Lane>;
constexpr Slow slow_lanes[] = {std::nullopt, Lane::compute, Lane::gather, Lane::reduce};

class Needs : public testing::Test {
 protected:
  /// Losses and norms of some steps with these needs, on any lanes; poisoned, so that what is read too late shows.
  [[nodiscard]] std::vector<double> curve(config::SyncPolicy policy, bool lane_threads, Slow slow,
                                          std::optional<std::vector<Need>> needs = std::nullopt,
                                          int milliseconds = 1) const {
    test::Setup setup;
    setup.microbatches = 2;
    setup.policy = {.sync = policy};
    const test::Steps* steps = nullptr;
    setup.options = {.lane_threads = lane_threads, .poison = true};
    setup.options.on_op = [&](int op, std::int64_t) {
      if (slow && schedule::lane_of(steps->op(op)) == *slow)
        std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    };
    setup.options.needs = std::move(needs);
    test::Steps job(world_, std::move(setup));
    steps = &job;
    return job.curve(count);
  }

  [[nodiscard]] static bool same_bits(const std::vector<double>& a, const std::vector<double>& b) { return a == b; }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
};

TEST_F(Needs, HoldHoweverSlowALaneIs) {
  for (const auto policy : {config::SyncPolicy::immediate, config::SyncPolicy::deferred}) {
    const std::vector<double> expected = curve(policy, false, std::nullopt);
    for (const Slow slow : slow_lanes) EXPECT_EQ(curve(policy, true, slow), expected);
  }
}

/// The tensors that the schedule lists for an op on a sharded stage; none for another op.
schedule::TensorSet listed(const schedule::Op& op, const model::Model& model) {
  schedule::TensorAccess found;
  const auto of_stage = [&](const auto& compute) {
    if (schedule::partitioned_stage(model, compute.block, compute.stage) != nullptr)
      found = schedule::tensors_of(compute, model);
  };
  if (const auto* forward = std::get_if<schedule::Forward>(&op)) of_stage(*forward);
  if (const auto* recompute = std::get_if<schedule::Recompute>(&op)) of_stage(*recompute);
  if (const auto* backward = std::get_if<schedule::Backward>(&op)) of_stage(*backward);
  if (const auto* exchanged = std::get_if<schedule::Exchanged>(&op)) found = schedule::tensors_of(*exchanged, model);
  if (const auto* rebuild = std::get_if<schedule::Rebuild>(&op)) found = schedule::tensors_of(*rebuild, model);
  return found.reads | found.writes;
}

// An op that uses another tensor throws BugError.
TEST_F(Needs, AreOfTensorsThatOpsUse) {
  for (const char* const architecture : {"llama", "olmo2", "gemma2"})
    for (const bool sequence_parallel : {true, false})
      for (const auto recompute : {config::Recompute::none, config::Recompute::block}) {
        std::map<std::string, schedule::TensorSet> used;
        const model::Model* model = nullptr;
        test::Setup setup{.architecture = architecture, .layers = 2, .sequence_parallel = sequence_parallel};
        setup.policy = {.recompute = {.mode = recompute}};
        setup.options = {.lane_threads = false};
        setup.options.on_tensors = [&](const schedule::Op& op, schedule::TensorSet of_op) {
          schedule::TensorSet& all = used[schedule::print(op, *model)];
          all = all | of_op;
        };
        test::Steps job(world_, std::move(setup));
        model = &job.model();
        job.run(true);
        for (int op = 0; op < job.ops(); ++op)
          EXPECT_EQ(used[schedule::print(job.op(op), *model)], listed(job.op(op), *model))
              << schedule::print(job.op(op), *model);
      }
}

TEST_F(Needs, OfEveryKindChangeTheResultWhenTheyAreMissing) {
  const std::vector<double> expected = curve(config::SyncPolicy::immediate, false, std::nullopt);
  const model::Model model = test::Steps(world_, {.microbatches = 2}).model();
  const schedule::Schedule steps = schedule::build_step(model, 2, {});
  const std::vector<Need> all = schedule::needs(steps, model);
  const auto lane = [&](int op) { return schedule::lane_of(steps.ops[static_cast<std::size_t>(op)]); };
  /// A pair of ops that is ordered for two reasons goes with either. A lane keeps its own order in any case.
  const auto without = [&](const std::function<bool(const Need&)>& gone) {
    std::vector<Need> kept;
    for (const Need& need : all) {
      const bool goes = std::ranges::any_of(all, [&](const Need& other) {
        return gone(other) && other.from == need.from && other.to == need.to && other.distance == need.distance;
      });
      if (!goes || lane(need.from) == lane(need.to)) kept.push_back(need);
    }
    return kept;
  };
  const auto expect_seen = [&](const std::string& what, const std::function<bool(const Need&)>& gone) {
    const std::vector<Need> kept = without(gone);
    EXPECT_LT(kept.size(), all.size()) << what;
    // On a busy machine, whose other lanes are slow too, a longer sleep is needed.
    const bool seen = std::ranges::any_of(std::array{1, 10, 50}, [&](int milliseconds) {
      return std::ranges::any_of(slow_lanes, [&](Slow slow) {
        return curve(config::SyncPolicy::immediate, true, slow, kept, milliseconds) != expected;
      });
    });
    EXPECT_TRUE(seen) << "nobody misses the needs: " << what;
  };
  expect_seen("read after write", [](const Need& n) { return n.reason == Reason::read_after_write; });
  expect_seen("write after read", [](const Need& n) { return n.reason == Reason::write_after_read; });
  expect_seen("write after write", [](const Need& n) { return n.reason == Reason::write_after_write; });
  expect_seen("across steps", [](const Need& n) { return n.distance == 1; });
  expect_seen("of gathers", [&](const Need& n) { return lane(n.to) == Lane::gather; });
  expect_seen("of reductions", [&](const Need& n) { return lane(n.to) == Lane::reduce; });
  expect_seen("of compute", [&](const Need& n) { return lane(n.to) == Lane::compute; });
}

}  // namespace
}  // namespace trireme::executor
