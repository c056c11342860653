// SPDX-License-Identifier: Apache-2.0
//
// Several microbatches in flight: a pass that overlaps them builds a sound step, and one that puts an op where it reads
// another's values is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "models.hpp"
#include "shuffle.hpp"
#include "trireme/base/hash.hpp"
#include "trireme/schedule/access.hpp"
#include "trireme/schedule/needs.hpp"
#include "trireme/schedule/passes/build.hpp"
#include "trireme/schedule/text.hpp"
#include "trireme/schedule/verify/verify.hpp"

namespace trireme::schedule {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<model::Model> models() {
  std::vector<model::Model> all;
  for (const bool tied : {false, true}) {
    all.push_back(testing::llama(2, tied));
    for (const bool sequence_parallel : {true, false})
      all.push_back(testing::llama(2, tied, {.rank = 0, .ranks = 2, .sequence_parallel = sequence_parallel}));
  }
  return all;
}

std::vector<Policy> policies() {
  std::vector<Policy> all;
  for (const auto sync :
       {config::SyncPolicy::immediate, config::SyncPolicy::deferred, config::SyncPolicy::immediate_all})
    for (const bool keep : {false, true})
      for (const auto recompute : {config::Recompute::selective, config::Recompute::block})
        all.push_back({.sync = sync,
                       .reshard = {.after_forward = !keep},
                       .recompute = {.mode = recompute},
                       .offload = {.what = keep ? config::Offload::optimizer : config::Offload::none},
                       .prefetch_bytes = keep ? std::optional(Bytes{1LL << 40}) : std::nullopt,
                       .replicas = 2});
  return all;
}

TEST(Microbatches, WhoseForwardsAreShuffledMakeASoundStep) {
  for (const model::Model& model : models())
    for (const Policy& policy : policies())
      for (unsigned seed = 1; seed <= 3; ++seed) {
        const Schedule step = build_step(model, testing::shuffle_forwards(compute_order(model, 3), seed), policy);
        EXPECT_THAT(verify_needs(step, model, needs(step, model)), IsEmpty());
        EXPECT_EQ(parse(print(step, model), model), step);
      }
}

/// The values that a schedule computes, as hashes of expressions: each resource's last writer and its inputs.
/// Gradients of one block are sums: their terms have no order.
std::map<Resource, std::uint64_t> values(const Schedule& schedule, const model::Model& model) {
  const auto mix = [](std::uint64_t a, std::uint64_t b) {
    return (a ^ (b + 0x9e3779b97f4a7c15U + (a << 6))) * 0x100000001b3U;
  };
  std::map<Resource, std::uint64_t> now;
  const std::vector<Access> all = accesses(schedule, model);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool backward = std::holds_alternative<Backward>(schedule.ops[i]);
    const bool reduces = std::holds_alternative<ReduceScatter>(schedule.ops[i]);
    const auto is_sum = [&](const Resource& r) {
      return (backward && std::holds_alternative<resource::GradientSlot>(r)) ||
             (reduces && std::holds_alternative<resource::GradientShard>(r));
    };
    // The slot of a block does not affect values.
    const bool computes = testing::microbatch_of(schedule.ops[i]) >= 0;
    std::uint64_t result = computes ? fnv1a(print(schedule.ops[i], model)) : schedule.ops[i].index();
    for (const Resource& read : all[i].reads)
      if (!is_sum(read)) result = mix(result, now.try_emplace(read, fnv1a(to_text(read, model))).first->second);
    for (const Resource& written : all[i].writes) now[written] = is_sum(written) ? now[written] + result : result;
    if (reduces)
      for (const Resource& read : all[i].reads)
        if (std::holds_alternative<resource::GradientSlot>(read)) now[read] = 0;
  }
  std::erase_if(now, [](const auto& of) { return !std::holds_alternative<resource::MasterShard>(of.first); });
  return now;
}

TEST(Microbatches, WhoseOpsAreSwappedGiveTheSameUpdatesOrAreRefused) {
  int refused = 0, same = 0;
  for (const model::Model& model : models())
    for (const auto recompute : {config::Recompute::selective, config::Recompute::block}) {
      const Schedule sound =
          build_step(model, testing::shuffle_forwards(compute_order(model, 2), 7), {.recompute = {.mode = recompute}});
      const auto expected = values(sound, model);
      for (std::size_t i = 0; i < sound.ops.size(); ++i)
        for (std::size_t j = i + 1; j < std::min(i + 12, sound.ops.size()); ++j) {
          if (testing::microbatch_of(sound.ops[i]) < 0 || testing::microbatch_of(sound.ops[j]) < 0) continue;
          Schedule mutant = sound;
          std::swap(mutant.ops[i], mutant.ops[j]);
          if (!verify(mutant, model, 1).empty()) {
            ++refused;
            continue;
          }
          ++same;
          EXPECT_EQ(values(mutant, model), expected) << "op " << i << " `" << print(sound.ops[i], model) << "` and op "
                                                     << j << " `" << print(sound.ops[j], model) << "` are swapped in\n"
                                                     << print(sound, model);
          if (HasFailure()) return;
        }
    }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(same, 100) << "ops of two microbatches may be swapped";
}

struct Misplaced {
  std::string name, from, to, says;
  bool tensor = true;
  config::Recompute recompute = config::Recompute::selective;
};

std::vector<Misplaced> misplaced() {
  return {
      {"BlocksOfAForward", "forward b0 m0\n", "",
       "`forward b1 m0`: is out of order: the next forward of m0 is b0.attention", false},
      {"StagesOfAForward", "forward b0 m1\n", "forward b0.mlp m1\nforward b0.attention m1\n",
       "is out of order: the next forward of m1 is b0.attention", false},
      {"ForwardThatEndsEarly", "forward head m1\n", "", "end of step: the forward of m1 ends before head.head", false},
      {"BackwardBeforeTheForwardEnds", "forward head m1\n", "", "comes before the forward of head.head in m1", false},
      {"BlocksOfABackward", "backward b1 m0", "backward b1 m1", "is out of order: the next backward of m1 is head.head",
       false},
      {"StagesOfARecompute", "recompute b0 m0\n", "recompute b0.mlp m0\n",
       "is out of order: the next recompute of m0 is b0.attention", false, config::Recompute::block},
      {"MicrobatchThatTheStepHasNot", "forward b0 m1\n", "forward b0 m2\n", "names m2 of a step of 2 microbatches",
       false},
      {"GatherBeforeItsNorm", "forward b0.attention_norm m1\ngather_sequence b0.attention m1\n",
       "gather_sequence b0.attention m1\nforward b0.attention_norm m1\n",
       "is out of order: the next forward of m1 is b0.attention_norm"},
      {"GatherOfAnotherBackward", "gather_sequence b0.mlp m1 backward\n", "gather_sequence b0.attention m1 backward\n",
       "is out of order: the next backward of m1 is b0.mlp"},
      {"BranchOverwritten", "recompute_norm b0.mlp_norm m1\n",
       "recompute_norm b0.mlp_norm m1\nrecompute_norm b0.attention_norm m1\n",
       "overwrites the output of b0.mlp_norm, which no backward_weight has read"},
      {"RecomputeWithinABackward", "recompute b0.attention_norm m1\n", "",
       "is out of order: the next recompute of m1 is b0.attention_norm", true, config::Recompute::block},
  };
}

class Order : public ::testing::TestWithParam<Misplaced> {};

TEST_P(Order, IsProvenForEveryPhase) {
  const Misplaced& of = GetParam();
  const model::Model model =
      of.tensor ? testing::llama(2, false, {.rank = 0, .ranks = 2, .sequence_parallel = true}) : testing::llama(2);
  std::string text = print(build_step(model, 2, {.recompute = {.mode = of.recompute}}), model);
  const std::size_t at = text.find(of.from);
  ASSERT_NE(at, std::string::npos) << of.from << " is not in\n" << text;
  text.replace(at, of.from.size(), of.to);
  EXPECT_THAT(verify(parse(text, model), model, 1), Contains(HasSubstr(of.says)));
}

INSTANTIATE_TEST_SUITE_P(, Order, ::testing::ValuesIn(misplaced()), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace trireme::schedule
