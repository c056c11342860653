// SPDX-License-Identifier: Apache-2.0
#include "trireme/schedule/verify/verify.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "schedule/models.hpp"
#include "trireme/base/error.hpp"
#include "trireme/schedule/passes/build.hpp"
#include "trireme/schedule/text.hpp"

namespace trireme::schedule::verify_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A way to break a schedule by editing its text, and the message that `verify` must have.
struct Broken {
  std::string name;
  std::vector<std::pair<std::string, std::string>> edits;  ///< first occurrence of .first becomes .second
  std::string says;
  config::SyncPolicy sync = config::SyncPolicy::immediate;
  int replicas = 1;
  std::optional<int> group{};
  config::Recompute recompute = config::Recompute::selective;
  config::Offload offload = config::Offload::none;
  bool activation_offload = false;
  bool one_shard = false, transient_gradients = false, updates_beside = false;
  bool muon = false;
};

std::vector<Broken> broken() {
  return {
      {.name = "MissingUnshard",
       .edits = {{"unshard b1 -> ring1.1\n", ""}},
       .says = "`forward b1 m0`: reads b1, which is not unsharded"},
      {.name = "DoubleUnshard",
       .edits = {{"unshard b0 -> ring1.0\n", "unshard b0 -> ring1.0\nunshard b0 -> ring1.1\n"}},
       .says = "unsharded already"},
      {.name = "UseAfterReshard",
       .edits = {{"forward b1 m0\nreshard b1\n", "reshard b1\nforward b1 m0\n"}},
       .says = "reads b1, which is not unsharded"},
      {.name = "DoubleReshard",
       .edits = {{"reshard b1\n", "reshard b1\nreshard b1\n"}},
       .says = "reshards a block that is not unsharded"},
      {.name = "LeftUnsharded",
       .edits = {{"reshard b0\nbackward embedding m1", "backward embedding m1"}},
       .says = "end of step: b0 is still unsharded"},
      {.name = "SlotInUse",
       .edits = {{"unshard b1 -> ring1.1", "unshard b1 -> ring1.0"}},
       .says = "overwrites the slot that holds b0"},
      {.name = "LostMicrobatch", .edits = {{"reduce_scatter b1 <- grad1.1\n", ""}}, .says = "microbatch m0 is lost"},
      {.name = "DoubleReduce",
       .edits = {{"reduce_scatter b1 <- grad1.1\n",
                  "reduce_scatter b1 <- grad1.1\nreduce_scatter b1 <- grad1.1 add\n"}},
       .says = "reduces a gradient that nothing has written"},
      {.name = "ReduceOverwrites", .edits = {{" add\n", "\n"}}, .says = "overwrites gradients"},
      {.name = "LostMicrobatchDeferred",
       .edits = {{" add\n", "\n"}},
       .says = "is lost",
       .sync = config::SyncPolicy::deferred},
      {.name = "BackwardTwice",
       .edits = {{"backward embedding m0", "backward embedding m1"}},
       .says = "has no forward before it"},
      {.name = "MissingBackward", .edits = {{"backward embedding m1 -> embedding grad0.0\n", ""}}, .says = "embedding"},
      {.name = "NormBeforeReduce",
       .edits = {{"clip_norm\n", ""}, {"reduce_scatter embedding", "clip_norm\nreduce_scatter embedding"}},
       .says = "each microbatch must be reduced exactly once"},
      {.name = "NoNorm", .edits = {{"clip_norm\n", ""}}, .says = "comes before clip_norm"},
      {.name = "UpdateTwice", .edits = {{"update b1\n", "update b1\nupdate b1\n"}}, .says = "updates a block twice"},
      {.name = "UpdateMissing", .edits = {{"update b1\n", ""}}, .says = "b1 is not updated"},
      {.name = "ReplicasNotSummed",
       .edits = {{"all_reduce b1\n", ""}},
       .says = "b1 was not summed over the replicas",
       .replicas = 2},
      {.name = "PartialNotSummed",
       .edits = {{"all_reduce b1 partial\n", ""}},
       .says = "writes over a partial gradient",
       .sync = config::SyncPolicy::immediate_all,
       .replicas = 2},
      {.name = "PartialOfAnotherBlock",
       .edits = {{"all_reduce b1 partial\n", "all_reduce b0 partial\n"}},
       .says = "sums a partial gradient that is not the block's",
       .sync = config::SyncPolicy::immediate_all,
       .replicas = 2},
      {.name = "CopyNeverLeft",
       .edits = {{"reshard b0 to 2\n", "reshard b0\n"}},
       .says = "that no reshard has left",
       .group = 2},
      {.name = "CopyOfOtherGroups",
       .edits = {{"reshard b0 to 2\n", "reshard b0 to 4\n"}},
       .says = "that no reshard has left",
       .group = 2},
      {.name = "NothingComputedAgain",
       .edits = {{"recompute b1 m0\n", ""}},
       .says = "reads what its forward did not keep",
       .recompute = config::Recompute::block},
      {.name = "ComputedAgainTwice",
       .edits = {{"recompute b1 m0\n", "recompute b1 m0\nrecompute b1 m0\n"}},
       .says = "has no forward before it that kept its block's input only",
       .recompute = config::Recompute::block},
      {.name = "ComputedAgainInTheWrongOrder",
       .edits = {{"recompute b1 m0\n", "recompute b1.mlp m0\nrecompute b1.attention m0\n"}},
       .says = "comes before the recompute of the stage whose output it reads",
       .recompute = config::Recompute::block},
      {.name = "ComputedAgainWithoutParameters",
       .edits = {{"unshard b1 -> ring1.0\nrecompute", "recompute"}},
       .says = "reads b1, which is not unsharded",
       .recompute = config::Recompute::block},
      {.name = "GradientNeverOnTheHost",
       .edits = {{"offload_gradient b1 <- down1.0 add\n", ""}},
       .says = "the gradient shard of b1 never came to the host",
       .offload = config::Offload::optimizer},
      {.name = "GradientOnTheHostOverwritten",
       .edits = {{"offload_gradient b1 <- down1.0 add\n", "offload_gradient b1 <- down1.0\n"}},
       .says = "overwrites a gradient that came to the host before",
       .offload = config::Offload::optimizer},
      {.name = "SlotOnTheWayToTheHostReused",
       .edits = {{"offload_gradient head <- down2.0\n", ""}},
       .says = "overwrites the gradient shard of head on its way",
       .offload = config::Offload::optimizer},
      {.name = "NormMissesTheHost",
       .edits = {{"sum_squares b1\n", ""}},
       .says = "misses the squares of b1 on the host",
       .offload = config::Offload::optimizer},
      {.name = "SquaresBeforeTheSumOverReplicas",
       .edits = {{"all_reduce b1\nsum_squares b1\n", "sum_squares b1\nall_reduce b1\n"}},
       .says = "comes before the replicas have summed the gradient",
       .replicas = 2,
       .offload = config::Offload::optimizer},
      {.name = "StaleCopyOnTheDevice",
       .edits = {{"upload b1\n", ""}},
       .says = "b1 was updated on the host and not uploaded",
       .offload = config::Offload::optimizer},
      {.name = "UploadBeforeTheUpdate",
       .edits = {{"update b1 on host\nupload b1\n", "upload b1\nupdate b1 on host\n"}},
       .says = "uploads before the update",
       .offload = config::Offload::optimizer},
      {.name = "UpdateOnTheWrongSide",
       .edits = {{"update b1 on host\n", "update b1\n"}},
       .says = "updates on the device; the gradient is on the host",
       .offload = config::Offload::optimizer},
      {.name = "GatherOfNothingUploaded",
       .edits = {{"upload b1 -> up1.1\n", ""}},
       .says = "gathers from a shard that was not uploaded",
       .offload = config::Offload::parameters},
      {.name = "ActivationsNotReloaded",
       .edits = {{"reload b1 m0\n", ""}},
       .says = "reads activations that are in host memory",
       .activation_offload = true},
      {.name = "ActivationsDroppedBeforeTheCopy",
       .edits = {{"offload b0 m0 min 0\n", ""}},
       .says = "drops activations that are not on the host",
       .activation_offload = true},
      {.name = "ActivationsReloadedTwice",
       .edits = {{"reload b1 m0\n", "reload b1 m0\nreload b1 m0\n"}},
       .says = "reloads activations whose memory was not allocated again",
       .activation_offload = true},
      {.name = "ActivationsReloadedWithoutMemory",
       .edits = {{"allocate b1 m0\n", ""}},
       .says = "reloads activations whose memory was not allocated again",
       .activation_offload = true},
      {.name = "ActivationsAllocatedTwice",
       .edits = {{"allocate b1 m0\n", "allocate b1 m0\nallocate b1 m0\n"}},
       .says = "allocates activations that were not dropped",
       .activation_offload = true},
      {.name = "ReplicasSummedTwice",
       .edits = {{"all_reduce b1\n", "all_reduce b1\nall_reduce b1\n"}},
       .says = "a second time",
       .replicas = 2},
      {.name = "InPlaceAndNotUnsharded",
       .edits = {{"unshard b1 in place\n", ""}},
       .says = "reads b1, which is not unsharded",
       .one_shard = true},
      {.name = "InPlaceAndOverwritten",
       .edits = {{"b1 in place add\n", "b1 in place\n"}},
       .says = "microbatch m0 is lost",
       .sync = config::SyncPolicy::deferred,
       .one_shard = true},
      {.name = "InPlaceAndInASlot",
       .edits = {{"backward b1 m1 -> b1 in place add", "backward b1 m1 -> b1 grad1.0 add"}},
       .says = "puts one block's gradient in two slots",
       .sync = config::SyncPolicy::deferred,
       .one_shard = true},
      {.name = "InPlaceAndReducedFromASlot",
       .edits = {{"reduce_scatter b1 in place", "reduce_scatter b1 <- grad1.0"}},
       .says = "reduces from a slot that does not hold the block's gradient",
       .sync = config::SyncPolicy::deferred,
       .one_shard = true},
      {.name = "UpdatedOnTwoLanes",
       .edits = {{"update b1 beside", "update b1 on host beside"}},
       .says = "both on the host and concurrently with the forward",
       .updates_beside = true},
      {.name = "GradientShardWithoutMemory",
       .edits = {{"allocate_gradient b1\n", ""}, {"clip_norm\n", "allocate_gradient b1\nclip_norm\n"}},
       .says = "has no memory for the gradient shard of b1",
       .transient_gradients = true},
      {.name = "GradientShardAllocatedTwice",
       .edits = {{"allocate_gradient b1\n", "allocate_gradient b1\nallocate_gradient b1\n"}},
       .says = "allocates a second gradient shard of b1",
       .transient_gradients = true},
      {.name = "GradientShardFreedBeforeItsUpdate",
       .edits = {{"update b1\nfree_gradient b1\n", "free_gradient b1\nupdate b1\n"}},
       .says = "frees before its update the gradient shard of b1",
       .transient_gradients = true},
      {.name = "GradientShardFreedTwice",
       .edits = {{"free_gradient b1\n", "free_gradient b1\nfree_gradient b1\n"}},
       .says = "frees no gradient shard of b1",
       .transient_gradients = true},
      {.name = "GradientShardNotFreed",
       .edits = {{"free_gradient b1\n", ""}},
       .says = "the gradient shard of b1 is not freed",
       .transient_gradients = true},
      {.name = "GradientShardFreedBesideTooLate",
       .edits = {{"free_gradient b1\n", ""}, {"clip_norm\n", "free_gradient b1\nclip_norm\n"}},
       .says = "frees before its update the gradient shard of b1",
       .transient_gradients = true,
       .updates_beside = true},
      {.name = "MatricesPreparedBeforeTheNorm",
       .edits = {{"prepare_matrices b0 to b0 in matrices0\n", ""},
                 {"clip_norm\n", "prepare_matrices b0 to b0 in matrices0\nclip_norm\n"}},
       .says = "`prepare_matrices b0 to b0 in matrices0`: comes before clip_norm",
       .muon = true},
      {.name = "MatricesPreparedTwice",
       .edits = {{"gather_matrices b0", "prepare_matrices b0 to b0 in matrices0\ngather_matrices b0"}},
       .says = "prepares b0 twice",
       .muon = true},
      {.name = "MatricesNotGathered",
       .edits = {{"gather_matrices b0 to b0 in matrices0\n", ""}},
       .says = "comes out of the order prepare, gather, orthogonalize, scatter",
       .muon = true},
      {.name = "MatricesNotBack",
       .edits = {{"scatter_matrices b0 to b0 in matrices0\n", ""}},
       .says = "`update b0 with matrices0`: comes before the matrices of its window are orthogonalized and back",
       .muon = true},
      {.name = "MatricesOfAnotherWindow",
       .edits = {{"update b0 with matrices0", "update b0 with matrices1"}},
       .says = "updates with matrices of another window",
       .muon = true},
      {.name = "MatricesOverwritten",
       .edits = {{"update b0 with matrices0\n", ""},
                 {"gather_matrices b2", "update b0 with matrices0\ngather_matrices b2"}},
       .says = "overwrites the matrices of b0, which is not updated",
       .muon = true},
      {.name = "MatricesInOneSlot",
       .edits = {{"prepare_matrices b1 to b1 in matrices1", "prepare_matrices b1 to b1 in matrices0"}},
       .says = "overwrites the matrices of b0, which are not updated",
       .muon = true},
  };
}

std::string edited(std::string text, const Broken& b) {
  for (const auto& [from, to] : b.edits) {
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << "the edit `" << from << "` finds nothing in\n" << text;
    if (at != std::string::npos) text.replace(at, from.size(), to);
  }
  return text;
}

class BrokenSchedule : public ::testing::TestWithParam<Broken> {};

TEST_P(BrokenSchedule, IsRejectedAtTheOp) {
  const Broken& b = GetParam();
  const model::Model model = testing::llama(3);
  const Schedule sound = build_step(
      model, 2,
      {.sync = b.sync,
       .reshard = {.group = b.group},
       .recompute = {.mode = b.recompute},
       .activation_offload = {.on = b.activation_offload},
       .offload = {.what = b.offload},
       .in_place = {.shards = b.one_shard ? std::optional(1) : std::nullopt},
       .prefetch_bytes = b.recompute == config::Recompute::block ? std::optional(Bytes{0}) : std::nullopt,
       .replicas = b.replicas,
       .transient_gradients = b.transient_gradients,
       .updates_beside = b.updates_beside,
       .muon = b.muon ? std::optional(MuonPolicy{.shards = 2, .owners = {.window = Bytes{1}}}) : std::nullopt});
  EXPECT_THAT(verify(sound, model, b.replicas), IsEmpty());
  const auto said = verify(parse(edited(print(sound, model), b), model), model, b.replicas);
  EXPECT_THAT(said, Contains(HasSubstr(b.says)));
}

INSTANTIATE_TEST_SUITE_P(, BrokenSchedule, ::testing::ValuesIn(broken()),
                         [](const auto& info) { return info.param.name; });

TEST(Parse, NamesTheLineAndWhatItExpected) {
  const model::Model model = testing::llama(1);
  try {
    (void)parse("step microbatches=1\nunshard b7 -> ring1.0\n", model);
    FAIL() << "b7 does not exist";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("line 2"));
    EXPECT_THAT(error.what(), HasSubstr("a parameter block of the model"));
  }
  for (const char* bad : {"jump b0", "unshard b0", "unshard b0 -> ring1", "forward b0.soup m0", "forward b0 x0",
                          "update b0 now", "step microbatches=two"})
    EXPECT_THROW((void)parse(bad, model), ConfigError) << bad;
}

}  // namespace
}  // namespace trireme::schedule::verify_test
