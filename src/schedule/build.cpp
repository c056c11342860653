// SPDX-License-Identifier: Apache-2.0
#include "trireme/schedule/build.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/schedule/verify.hpp"

namespace trireme::schedule {
namespace {

/// Runs passes one after another; each result is verified and can be kept for a person to look at.
class Builder {
 public:
  Builder(const model::Model& model, int replicas) : model_(model), replicas_(replicas) {}

  void after(std::string pass, Schedule schedule, Complete complete) {
    const auto wrong = verify(schedule, model_, replicas_, complete);
    invariant(wrong.empty(),
              fmt::format("the pass {} built an unsound schedule:\n  {}", pass, fmt::join(wrong, "\n  ")));
    results_.push_back({std::move(pass), std::move(schedule)});
  }
  [[nodiscard]] const Schedule& now() const { return results_.back().schedule; }
  std::vector<PassResult> take() { return std::move(results_); }

 private:
  const model::Model& model_;
  int replicas_;
  std::vector<PassResult> results_;
};

}  // namespace

Policy policy_of(const config::RunConfig& config, const config::Resolved& mesh) {
  const auto after_forward =
      config.sync.reshard_after_forward;  // 0: the whole axis, 1: not at all, else the group size
  return {.sync = config.sync.policy,
          .reshard = {.after_forward = after_forward != 1,
                      .after_backward = config.sync.reshard_after_backward,
                      .group = after_forward > 1 && after_forward < mesh.shard
                                   ? std::optional(static_cast<int>(after_forward))
                                   : std::nullopt},
          .recompute = {.mode = config.memory.recompute, .every = config.memory.recompute_every},
          .activation_offload = {.on = config.memory.activation_offload,
                                 .min_bytes = config.memory.activation_offload_min_bytes,
                                 .in_flight = config.memory.activation_offload_in_flight},
          .offload = {.what = config.memory.offload, .fraction = config.memory.offload_fraction},
          .prefetch_bytes = config.sync.prefetch_bytes,
          .compute = config.precision.compute,
          .replicas = mesh.replicate};
}

std::vector<PassResult> explain_step(const model::Model& model, Schedule order, const Policy& policy) {
  Complete has{.unshard = false, .reduction = false, .update = false, .slots = false};
  Builder build(model, policy.replicas);
  build.after("compute_order", std::move(order), has);
  build.after("insert_recompute", insert_recompute(build.now(), model, policy.recompute), has);
  has.unshard = true;
  build.after("insert_unshard", insert_unshard(build.now(), model, policy.reshard), has);
  has.reduction = true;
  build.after("insert_reduction", insert_reduction(build.now(), model, policy.sync, policy.replicas), has);
  has.update = true;
  build.after("insert_update", insert_update(build.now(), model), has);
  build.after("fuse_stages", fuse_stages(build.now(), model), has);
  build.after("prefetch", prefetch(build.now(), model, policy.compute, policy.prefetch_bytes), has);
  build.after("insert_offload", insert_offload(build.now(), model, policy.offload), has);
  build.after("insert_activation_offload", insert_activation_offload(build.now(), model, policy.activation_offload),
              has);
  has.slots = true;
  build.after("assign_slots", assign_slots(build.now(), model), has);
  return build.take();
}

Schedule build_step(const model::Model& model, int microbatches, const Policy& policy) {
  return build_step(model, compute_order(model, microbatches), policy);
}

Schedule build_step(const model::Model& model, Schedule order, const Policy& policy) {
  return explain_step(model, std::move(order), policy).back().schedule;
}

Schedule build_forward(const model::Model& model, const Policy& policy) {
  Schedule s = forward_order(model);
  s = insert_unshard(s, model, {});
  s = fuse_stages(s, model);
  s = prefetch(s, model, policy.compute, policy.prefetch_bytes);
  s = insert_offload(s, model, policy.offload);
  s = assign_slots(s, model);
  const auto wrong =
      verify(s, model, policy.replicas, {.unshard = true, .reduction = false, .update = false, .slots = true});
  invariant(wrong.empty(), fmt::format("build_forward built an unsound schedule:\n  {}", fmt::join(wrong, "\n  ")));
  return s;
}

}  // namespace trireme::schedule
