// SPDX-License-Identifier: Apache-2.0
// Golden schedules: what each policy does, as text. TRIREME_UPDATE_GOLDENS=1 rewrites them, so that a diff shows the
// change.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "models.hpp"
#include "trireme/schedule/passes/build.hpp"
#include "trireme/schedule/text.hpp"

namespace trireme::schedule {
namespace {

struct Golden {
  std::string name;
  std::int64_t layers = 3;
  bool tied = false;
  int microbatches = 2;
  Policy policy;
  std::string folder{};  ///< in that of the goldens
};

std::vector<Golden> goldens() {
  using config::SyncPolicy;
  return {
      {.name = "immediate"},
      {.name = "immediate_one_microbatch", .microbatches = 1},
      {.name = "deferred", .policy = {.sync = SyncPolicy::deferred}},
      {.name = "deferred_tied", .layers = 2, .tied = true, .policy = {.sync = SyncPolicy::deferred}},
      {.name = "immediate_tied", .layers = 2, .tied = true},
      {.name = "immediate_keep_after_forward", .policy = {.reshard = {.after_forward = false}}},
      {.name = "deferred_keep_until_update",
       .policy = {.sync = SyncPolicy::deferred, .reshard = {.after_forward = false, .after_backward = false}}},
      {.name = "immediate_no_prefetch", .policy = {.prefetch_bytes = Bytes{0}}},
      {.name = "immediate_unbounded_prefetch", .policy = {.prefetch_bytes = Bytes{1LL << 40}}},
      {.name = "immediate_replicated", .policy = {.replicas = 2}},
      {.name = "immediate_all_replicated", .policy = {.sync = SyncPolicy::immediate_all, .replicas = 2}},
      {.name = "recompute_block", .policy = {.recompute = {.mode = config::Recompute::block}}},
      {.name = "deferred_recompute_every_2",
       .policy = {.sync = SyncPolicy::deferred, .recompute = {.mode = config::Recompute::block, .every = 2}}},
      {.name = "recompute_none",
       .microbatches = 1,
       .policy = {.reshard = {.after_forward = false}, .recompute = {.mode = config::Recompute::none}}},
      {.name = "offload_optimizer", .policy = {.offload = {.what = config::Offload::optimizer}}},
      {.name = "offload_parameters_half",
       .policy = {.sync = SyncPolicy::deferred, .offload = {.what = config::Offload::parameters, .fraction = 0.5}}},
      {.name = "offload_optimizer_replicated",
       .policy = {.offload = {.what = config::Offload::optimizer}, .replicas = 2}},
      {.name = "offload_optimizer_all_replicated",
       .policy = {.sync = SyncPolicy::immediate_all, .offload = {.what = config::Offload::optimizer}, .replicas = 2}},
      {.name = "activation_offload",
       .layers = 4,
       .microbatches = 1,
       .policy = {.activation_offload = {.on = true, .min_bytes = Bytes{1024}}}},
      {.name = "activation_offload_of_inputs",
       .layers = 4,
       .microbatches = 1,
       .policy = {.recompute = {.mode = config::Recompute::block}, .activation_offload = {.on = true, .in_flight = 2}}},
      {.name = "immediate_reshard_to_2", .policy = {.reshard = {.group = 2}}},
      {.name = "deferred_tied_reshard_to_2",
       .layers = 2,
       .tied = true,
       .policy = {.sync = SyncPolicy::deferred, .reshard = {.group = 2}}},
      {.name = "updates_beside", .microbatches = 1, .policy = {.updates_beside = true}, .folder = "state/"},
      {.name = "transient_gradients", .policy = {.transient_gradients = true}, .folder = "state/"},
      {.name = "transient_gradients_one_shard_updates_beside",
       .policy = {.in_place = {.shards = 1}, .transient_gradients = true, .updates_beside = true},
       .folder = "state/"},
      {.name = "muon",
       .layers = 4,
       .microbatches = 1,
       .policy = {.muon = MuonPolicy{.shards = 2, .owners = {.window = Bytes{1}}}},
       .folder = "state/"},
      {.name = "muon_one_shard_updates_beside",
       .microbatches = 1,
       .policy = {.in_place = {.shards = 1},
                  .updates_beside = true,
                  .muon = MuonPolicy{.shards = 1, .owners = {.adamw = {"*.1.*", "*embed*"}}}},
       .folder = "state/"},
      {.name = "one_shard", .policy = {.in_place = {.shards = 1}}, .folder = "state/"},
      {.name = "one_shard_deferred",
       .policy = {.sync = SyncPolicy::deferred, .in_place = {.shards = 1}},
       .folder = "state/"},
      {.name = "one_shard_all_replicated",
       .policy = {.sync = SyncPolicy::immediate_all, .in_place = {.shards = 1}, .replicas = 2},
       .folder = "state/"},
      {.name = "one_shard_offload_parameters_half",
       .policy = {.offload = {.what = config::Offload::parameters, .fraction = 0.5}, .in_place = {.shards = 1}},
       .folder = "state/"},
  };
}

std::string read(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

class GoldenSchedule : public ::testing::TestWithParam<Golden> {};

TEST_P(GoldenSchedule, EqualsTheText) {
  const Golden& golden = GetParam();
  const model::Model model = testing::llama(golden.layers, golden.tied);
  const Schedule built = build_step(model, golden.microbatches, golden.policy);
  const std::string path = TRIREME_SOURCE_DIR "/tests/schedule/golden/" + golden.folder + golden.name + ".txt";
  if (std::getenv("TRIREME_UPDATE_GOLDENS") != nullptr) std::ofstream(path) << print(built, model);
  EXPECT_EQ(print(built, model), read(path)) << "run with TRIREME_UPDATE_GOLDENS=1 and look at the diff";
  EXPECT_EQ(parse(read(path), model), built);
}

INSTANTIATE_TEST_SUITE_P(, GoldenSchedule, ::testing::ValuesIn(goldens()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace trireme::schedule
