// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/load.hpp"
#include "trireme/schedule/passes/passes.hpp"

namespace trireme::schedule {

/// The choices that shape a step.
struct Policy {
  config::SyncPolicy sync = config::SyncPolicy::immediate;
  ReshardPolicy reshard;
  RecomputePolicy recompute{};
  ActivationOffloadPolicy activation_offload{};
  OffloadPolicy offload{};
  InPlacePolicy in_place{};
  std::optional<Bytes> prefetch_bytes;
  DType compute = DType::fp32;
  int replicas = 1;
  bool transient_gradients = false;  ///< gradient shards have memory from their first reduction to their update
  bool updates_beside = false;       ///< on a separate lane, concurrent with the next step's forward
  std::optional<MuonPolicy> muon{};
};

/// The policy of a run file on a mesh. On a GPU if `device.type`
/// is cuda, not auto: see planner::computing_on().
[[nodiscard]] Policy policy_of(const config::RunConfig& config, const config::Resolved& mesh);

/// Builds one training step of `microbatches` microbatches, verified. Throws BugError naming the first pass whose
/// result is not sound, and the op.
[[nodiscard]] Schedule build_step(const model::Model& model, int microbatches, const Policy& policy);
/// The same from any order of the compute ops instead of that of `compute_order`: microbatches may overlap.
[[nodiscard]] Schedule build_step(const model::Model& model, const Schedule& order, const Policy& policy);

/// The same without verification, which takes most of the time: for a search that builds thousands and runs none.
[[nodiscard]] Schedule build_step_unverified(const model::Model& model, int microbatches, const Policy& policy);
[[nodiscard]] Schedule build_step_unverified(const model::Model& model, Schedule order, const Policy& policy);

/// Builds one forward only: evaluation, and generation without a cache. Verified in the same way.
[[nodiscard]] Schedule build_forward(const model::Model& model, const Policy& policy);
/// The same from an order of its ops.
[[nodiscard]] Schedule build_forward(const model::Model& model, const Schedule& order, const Policy& policy);

/// Builds the forward of a text that grows: the first one computes all of its tokens, each later one those that were
/// added. In the same slots as `build_forward`.
[[nodiscard]] Schedule build_generation(const model::Model& model, const Policy& policy);

/// Purpose of a schedule: a training step, a forward for evaluation, or one for generation with a key/value cache.
enum class Purpose { train, forward, generate };

using Clock = std::chrono::steady_clock;

/// A pass by name, the schedule after it, and how long the pass and its verification took.
struct PassResult {
  std::string_view pass;
  Schedule schedule;
  Clock::duration time{}, verify_time{};
};
/// Runs the passes for `purpose` one after another, on `order`; each result is verified.
[[nodiscard]] std::vector<PassResult> explain(Purpose purpose, const model::Model& model, Schedule order,
                                              const Policy& policy);
/// A table of passes: ops after each, and times.
[[nodiscard]] std::string to_text(std::span<const PassResult> results);

}  // namespace trireme::schedule
