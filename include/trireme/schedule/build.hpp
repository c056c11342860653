// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/config/load.hpp"
#include "trireme/schedule/passes.hpp"

namespace trireme::schedule {

/// The choices that shape a step.
struct Policy {
  config::SyncPolicy sync = config::SyncPolicy::immediate;
  ReshardPolicy reshard;
  RecomputePolicy recompute{};
  ActivationOffloadPolicy activation_offload{};
  OffloadPolicy offload{};
  std::optional<Bytes> prefetch_bytes;
  DType compute = DType::fp32;
  int replicas = 1;
};

/// The policy that a run file asks for on a mesh.
[[nodiscard]] Policy policy_of(const config::RunConfig& config, const config::Resolved& mesh);

/// Builds one training step of `microbatches` microbatches; every pass's result is verified.
/// Throws BugError naming the pass and the op when one is not sound.
[[nodiscard]] Schedule build_step(const model::Model& model, int microbatches, const Policy& policy);
/// The same from any order of the compute ops, which `compute_order` gives else: microbatches may overlap.
[[nodiscard]] Schedule build_step(const model::Model& model, Schedule order, const Policy& policy);

/// Builds one forward only: evaluation and generation.
[[nodiscard]] Schedule build_forward(const model::Model& model, const Policy& policy);

/// A pass by name, and the schedule after it: what `plan --show schedule` can print.
struct PassResult {
  std::string pass;
  Schedule schedule;
};
[[nodiscard]] std::vector<PassResult> explain_step(const model::Model& model, Schedule order, const Policy& policy);

}  // namespace trireme::schedule
