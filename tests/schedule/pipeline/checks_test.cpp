// SPDX-License-Identifier: Apache-2.0
// Checks of verify_pipeline that no mutant of built lists needs: lists of a few ops, each wrong in one thing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "pipelines.hpp"
#include "trireme/schedule/pipeline/verify.hpp"

namespace trireme::schedule {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::Lists;
using testing::lists_of;
using ::testing::Not;
using testing::pipeline;

constexpr auto forward = Phase::forward, backward = Phase::backward;

Lists model_of(int ranks, bool tied = false) {
  return lists_of(pipeline(PipelineKind::one_f_one_b, ranks, 1), {}, tied);
}
Op send(int edge, Phase phase, int peer) { return Send{Edge{edge}, Microbatch{0}, phase, {}, peer}; }
Op receive(int edge, Phase phase, int peer) { return Receive{Edge{edge}, Microbatch{0}, phase, {}, peer}; }

/// Mistakes found in a list for each rank.
std::vector<std::string> wrong(const Lists& of, std::vector<std::vector<Op>> ops) {
  std::vector<Schedule> lists;
  for (std::vector<Op>& list : ops) lists.push_back({.microbatches = 1, .ops = std::move(list)});
  return verify_pipeline(lists, of.parts, of.pipeline);
}

ParamBlock block_named(const model::Model& model, const std::string& name) {
  for (int b = 0; b < model.param_blocks(); ++b)
    if (model[ParamBlock{b}].name == name) return ParamBlock{b};
  throw std::invalid_argument(name);
}

TEST(PipelineChecks, ASendMeetsNoReceiveOfAnotherEdgeDirectionOrPeer) {
  const Lists two = model_of(2), three = model_of(3);
  const auto waits = Contains(HasSubstr("pipeline rank 0 waits forever at op 0 `send e0 m0"));
  const auto waits_not = Not(Contains(HasSubstr("waits forever")));
  EXPECT_THAT(wrong(two, {{send(0, forward, 1)}, {receive(0, forward, 0)}}), waits_not);
  EXPECT_THAT(wrong(two, {{send(0, forward, 1)}, {receive(1, forward, 0)}}), waits);
  EXPECT_THAT(wrong(two, {{send(0, forward, 1)}, {receive(0, backward, 0)}}), waits);
  EXPECT_THAT(wrong(three, {{send(0, forward, 1)}, {receive(0, forward, 2)}, {ClipNorm{}}}), waits);
}

TEST(PipelineChecks, ARankThatHasEndedSendsNothingMore) {
  EXPECT_THAT(
      wrong(model_of(2), {{receive(0, backward, 1), receive(0, backward, 1)}, {send(0, backward, 0)}}),
      Contains(AllOf(HasSubstr("pipeline rank 0 waits forever"), HasSubstr("pipeline rank 1, which has ended"))));
}

TEST(PipelineChecks, OnlyRanksThatStandElsewhereAreWaitedFor) {
  const std::vector<std::string> found =
      wrong(model_of(3), {{ClipNorm{}}, {ClipNorm{}}, {receive(1, forward, 1), ClipNorm{}}});
  const auto rank_0 = HasSubstr("pipeline rank 0 waits forever");
  EXPECT_THAT(found, Contains(AllOf(rank_0, HasSubstr("for pipeline rank 2, which is at op 0"),
                                    Not(HasSubstr("pipeline rank 1")))));
}

TEST(PipelineChecks, SumsOverThePipelineMeetThoseOfTheSameBlock) {
  const std::string tied = "embedding", other = "another";
  Lists of = model_of(3, /*tied=*/true);
  const auto share = [&](model::PipelinePart& part) {  // a second block
    auto& blocks = part.model.parameter_blocks;
    const auto block = std::ranges::find_if(blocks, [&](const auto& held) { return held.name != tied; });
    block->name = other;
    block->on_two_pipeline_ranks = true;
  };
  share(of.parts[0]);
  share(of.parts[1]);
  const auto sum = [&](int rank, const std::string& name, Copies over = Copies::pipeline) -> Op {
    return AllReduceReplicated{block_named(of.parts[static_cast<std::size_t>(rank)].model, name), over};
  };
  const auto waits = Contains(HasSubstr("waits forever"));
  EXPECT_THAT(wrong(of, {{sum(0, tied), sum(0, other)}, {sum(1, other)}, {sum(2, tied)}}), Not(waits));
  EXPECT_THAT(wrong(of, {{sum(0, tied), sum(0, other)}, {sum(1, other)}, {}}), waits);
  // One over the tensor axis is the rank's own.
  EXPECT_THAT(wrong(of, {{sum(0, tied, Copies::tensor), sum(0, tied)}, {}, {sum(2, tied)}}), Not(waits));
  // In another order each of two ranks waits for the other one.
  of = model_of(2, /*tied=*/true);
  for (model::PipelinePart& part : of.parts) share(part);
  EXPECT_THAT(wrong(of, {{sum(0, tied), sum(0, other)}, {sum(1, tied), sum(1, other)}}), Not(waits));
  EXPECT_THAT(wrong(of, {{sum(0, tied), sum(0, other)}, {sum(1, other), sum(1, tied)}}), waits);
}

TEST(PipelineChecks, TransfersHaveADirectionAndAMicrobatchAndAnEdgeOfTheModel) {
  const Lists of = model_of(2);
  const auto put = [](int edge, int microbatch, Phase phase) -> std::vector<Op> {
    return {Put{Edge{edge}, Microbatch{microbatch}, phase, {}}};
  };
  EXPECT_THAT(wrong(of, {put(0, 0, Phase::recompute), {}}), Contains(HasSubstr("has no direction")));
  EXPECT_THAT(wrong(of, {put(0, -1, forward), {}}), Contains(HasSubstr("names m-1 of a step of 1 microbatches")));
  // Behind the last chunk a loop would begin again.
  EXPECT_THAT(wrong(of, {{}, {send(1, forward, 0)}}), Contains(HasSubstr("sends what this rank does not send")));
}

TEST(PipelineChecks, ABlockBelongsToAChunk) {
  Lists of = model_of(2);
  --of.parts[1].chunks.back().last.value;
  EXPECT_THAT(verify_pipeline(of.lists, of.parts, of.pipeline),
              Contains(HasSubstr("computes a block that no chunk of this rank has")));
}

}  // namespace
}  // namespace trireme::schedule
