// SPDX-License-Identifier: Apache-2.0
#include "executor/segments.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <set>
#include <string>

#include "trireme/config/run_config.hpp"
#include "trireme/schedule/access.hpp"
#include "trireme/schedule/passes/build.hpp"
#include "trireme/schedule/text.hpp"

namespace trireme::executor::segments_test {
namespace {

struct Case {
  std::string name;
  schedule::Policy policy;
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

/// Parameters are gathered before the first microbatch and gradients reduced after the last.
schedule::Policy kept() {
  return {.sync = config::SyncPolicy::deferred, .reshard = {.after_forward = false, .after_backward = false}};
}

std::vector<Case> cases() {
  return {{.name = "Immediate", .policy = {}},
          {.name = "Deferred", .policy = {.sync = config::SyncPolicy::deferred}},
          {.name = "Kept", .policy = kept()},
          {.name = "Recomputed", .policy = {.recompute = {.mode = config::Recompute::block}}},
          {.name = "Offloaded", .policy = {.offload = {.what = config::Offload::parameters}}}};
}

class SegmentsOf : public testing::TestWithParam<Case> {
 protected:
  static constexpr int microbatches = 4;
  [[nodiscard]] const schedule::Op& op(int index) const { return schedule_.ops[static_cast<std::size_t>(index)]; }
  [[nodiscard]] bool computes(int index) const { return schedule::computes(op(index)).has_value(); }
  [[nodiscard]] bool on_compute_lane(int index) const {
    return schedule::lane_of(op(index)) == schedule::Lane::compute;
  }

  model::Model model_ = model::build(
      config::Model{.vocab_size = 97, .hidden_size = 40, .intermediate_size = 56, .layers = 4, .heads = 4});
  schedule::Schedule schedule_ = schedule::build_step(model_, microbatches, GetParam().policy);
  std::vector<schedule::Need> needs_ = schedule::needs(schedule_, model_);
  std::vector<std::vector<int>> segments_ = segments(schedule_, needs_);
};

TEST_P(SegmentsOf, HoldEveryOpThatComputesOnceAndInOrder) {
  std::vector<int> all;
  for (const auto& segment : segments_) {
    EXPECT_TRUE(computes(segment.front())) << schedule::print(op(segment.front()), model_);
    all.insert(all.end(), segment.begin(), segment.end());
  }
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
  EXPECT_EQ(std::set(all.begin(), all.end()).size(), all.size());
  for (int i = 0; i < static_cast<int>(schedule_.ops.size()); ++i)
    EXPECT_TRUE(!computes(i) || std::binary_search(all.begin(), all.end(), i)) << schedule::print(op(i), model_);
  for (const int i : all) EXPECT_TRUE(on_compute_lane(i)) << schedule::print(op(i), model_);
}

TEST_P(SegmentsOf, AreNoShorterThanTheirLanesAsk) {
  // Joining a segment with the next one of its microbatch would make something wait that need not, or miss something.
  std::size_t ends = 0;
  for (std::size_t i = 1; i < segments_.size(); ++i) {
    const int last = segments_[i - 1].back(), first = segments_[i].front();
    bool between = false;
    for (int j = last + 1; j < first; ++j) between = between || on_compute_lane(j);
    const bool meet = std::any_of(needs_.begin(), needs_.end(), [&](const schedule::Need& need) {
      return (need.from == last || need.to == first) && on_compute_lane(need.from) != on_compute_lane(need.to);
    });
    const bool same = schedule::computes(op(segments_[i - 1].front())) == schedule::computes(op(first));
    EXPECT_TRUE(between || meet || !same)
        << schedule::print(op(last), model_) << " and " << schedule::print(op(first), model_);
    ++ends;
  }
  EXPECT_GE(ends, microbatches - 1U);
}

INSTANTIATE_TEST_SUITE_P(, SegmentsOf, testing::ValuesIn(cases()), [](const auto& info) { return info.param.name; });

TEST(Segments, AreWholeMicrobatchesWhereNothingIsGatheredOrReducedInThem) {
  const model::Model model = model::build(
      config::Model{.vocab_size = 97, .hidden_size = 40, .intermediate_size = 56, .layers = 4, .heads = 4});
  const schedule::Schedule schedule = schedule::build_step(model, 4, kept());
  std::size_t longest = 0;
  for (const auto& segment : segments(schedule, schedule::needs(schedule, model)))
    longest = std::max(longest, segment.size());
  EXPECT_GE(longest, 2U * static_cast<std::size_t>(model.blocks())) << "a forward and a backward of every block";
}

}  // namespace
}  // namespace trireme::executor::segments_test
