// SPDX-License-Identifier: Apache-2.0
#include "trireme/schedule/needs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "models.hpp"
#include "trireme/schedule/passes/build.hpp"
#include "trireme/schedule/text.hpp"
#include "trireme/schedule/verify/verify.hpp"

namespace trireme::schedule::needs_test {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;

std::vector<Policy> policies() {
  std::vector<Policy> all;
  using config::SyncPolicy;
  constexpr config::Offload offloads[] = {config::Offload::none, config::Offload::optimizer,
                                          config::Offload::parameters};
  for (const auto sync : {SyncPolicy::immediate, SyncPolicy::deferred, SyncPolicy::immediate_all})
    for (const int group : {0, 1, 2})  // 0: the whole axis, 1: kept
      for (const bool after_backward : {true, false})
        for (const auto& limit : {std::optional<Bytes>{}, std::optional{Bytes{0}}, std::optional{Bytes{1LL << 40}}})
          for (const int replicas : {1, 2})
            all.push_back(
                {.sync = sync,
                 .reshard = {.after_forward = group != 1,
                             .after_backward = after_backward,
                             .group = group > 1 ? std::optional(group) : std::nullopt},
                 .recompute = {.mode = all.size() % 3 == 0 ? config::Recompute::block : config::Recompute::selective,
                               .every = 1 + static_cast<std::int64_t>(all.size() % 2)},
                 .activation_offload = {.on = all.size() % 4 == 1,
                                        .in_flight = 1 + static_cast<std::int64_t>(all.size() % 3)},
                 .offload = {.what = offloads[all.size() % 5 % 3], .fraction = all.size() % 7 < 4 ? 1 : 0.4},
                 .prefetch_bytes = limit,
                 .replicas = replicas});
  return all;
}

int find(const Schedule& schedule, const model::Model& model, const std::string& text, int from = 0) {
  for (int i = from; i < static_cast<int>(schedule.ops.size()); ++i)
    if (print(schedule.ops[static_cast<std::size_t>(i)], model).starts_with(text)) return i;
  return -1;
}

TEST(Needs, OrderEveryConflictOfEveryPolicy) {
  for (const bool tied : {false, true})
    for (const std::int64_t layers : {1, 2, 5})
      for (const int microbatches : {1, 3})
        for (const Policy& policy : policies()) {
          const model::Model model = testing::llama(layers, tied);
          const Schedule schedule = build_step(model, microbatches, policy);
          EXPECT_THAT(verify(schedule, model, policy.replicas), IsEmpty());
          EXPECT_THAT(verify_needs(schedule, model, needs(schedule, model)), IsEmpty());
        }
}

TEST(Needs, LetABlocksReductionRunUnderTheNextBlocksBackward) {
  const model::Model model = testing::llama(4);
  const Schedule schedule = build_step(model, 1, {});
  const int reduce = find(schedule, model, "reduce_scatter b2");
  const int backward = find(schedule, model, "backward b1 m0");
  ASSERT_GE(reduce, 0);
  ASSERT_GT(backward, reduce);
  for (const Need& need : needs(schedule, model)) EXPECT_FALSE(need.from == reduce && need.to == backward);
}

TEST(Needs, LetTheNextStepStartWithTheFirstBlockUpdated) {
  const model::Model model = testing::llama(3);
  const Schedule schedule = build_step(model, 1, {});
  const int unshard = find(schedule, model, "unshard embedding");
  std::vector<std::string> waits;
  for (const Need& need : needs(schedule, model))
    if (need.to == unshard && need.distance == 1 && need.reason == Reason::read_after_write)
      waits.push_back(print(schedule.ops[static_cast<std::size_t>(need.from)], model));
  EXPECT_EQ(waits, std::vector<std::string>{"update embedding"});
}

/// The mutation test: without the needs of one kind (or without those across steps) some conflict is not ordered.
TEST(Needs, NoKindOfEdgeIsForShow) {
  const model::Model model = testing::llama(4);
  const Schedule schedule = build_step(model, 2, {});
  const std::vector<Need> all = needs(schedule, model);
  const auto same_pair = [](const Need& a, const Need& b) {
    return a.from == b.from && a.to == b.to && a.distance == b.distance;
  };
  const auto without = [&](auto gone) {  // a pair of ops that is ordered for two reasons goes with either
    std::vector<Need> kept;
    for (const Need& need : all)
      if (std::none_of(all.begin(), all.end(), [&](const Need& n) { return gone(n) && same_pair(n, need); }))
        kept.push_back(need);
    EXPECT_LT(kept.size(), all.size());
    return verify_needs(schedule, model, kept);
  };
  for (const Reason reason :
       {Reason::read_after_write, Reason::write_after_read, Reason::write_after_write, Reason::lane_order})
    EXPECT_THAT(without([&](const Need& n) { return n.reason == reason; }), Not(IsEmpty()))
        << "reason " << static_cast<int>(reason);
  EXPECT_THAT(without([](const Need& n) { return n.distance == 1; }), Not(IsEmpty())) << "across steps";
}

TEST(Needs, EveryEdgeThatNothingElseImpliesIsSeenMissing) {
  const model::Model model = testing::llama(2);
  const Schedule schedule = build_step(model, 2, {});
  const std::vector<Need> all = needs(schedule, model);
  int carrying = 0;
  for (std::size_t gone = 0; gone < all.size(); ++gone) {
    std::vector<Need> kept = all;
    kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(gone));
    carrying += verify_needs(schedule, model, kept).empty() ? 0 : 1;
  }
  EXPECT_GT(carrying, static_cast<int>(schedule.ops.size()) / 2);
}

}  // namespace
}  // namespace trireme::schedule::needs_test
