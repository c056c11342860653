// SPDX-License-Identifier: Apache-2.0
#include "trireme/schedule/passes/build.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/base/text_table.hpp"
#include "trireme/optimizer/plan.hpp"
#include "trireme/schedule/verify/verify.hpp"

namespace trireme::schedule {
namespace {

/// Purposes of a pass.
enum class For { all, training, generation };

bool is_for(For schedules, Purpose purpose) {
  if (schedules == For::training) return purpose == Purpose::train;
  return schedules == For::all || purpose == Purpose::generate;
}

/// A pass: its function, and the property that it establishes.
struct NamedPass {
  std::string_view name;
  For schedules;
  bool Complete::*adds;  ///< null: no property that `verify` can require
  Schedule (*run)(Schedule, const model::Model&, const Policy&, Purpose);
};

/// All passes, from the order of the compute ops to a schedule that runs.
constexpr NamedPass passes[] = {
    {"insert_recompute", For::training, nullptr,
     [](Schedule s, const model::Model& model, const Policy& policy, Purpose) {
       return insert_recompute(std::move(s), model, policy.recompute);
     }},
    {"insert_unshard", For::all, &Complete::unshard,
     [](Schedule s, const model::Model& model, const Policy& policy, Purpose purpose) {
       return insert_unshard(std::move(s), model, purpose == Purpose::train ? policy.reshard : ReshardPolicy{});
     }},
    {"insert_reduction", For::training, &Complete::reduction,
     [](Schedule s, const model::Model& model, const Policy& policy, Purpose) {
       return insert_reduction(std::move(s), model, policy.sync, policy.replicas);
     }},
    {"insert_update", For::training, &Complete::update,
     [](Schedule s, const model::Model& model, const Policy& policy, Purpose) {
       return insert_update(std::move(s), model, policy.updates_beside);
     }},
    {"insert_matrices", For::training, nullptr,
     [](Schedule s, const model::Model& model, const Policy& policy, Purpose) {
       return insert_matrices(std::move(s), model, policy.muon);
     }},
    {"fuse_stages", For::all, nullptr,
     [](Schedule s, const model::Model& model, const Policy&, Purpose) { return fuse_stages(std::move(s), model); }},
    {"insert_kv_cache", For::generation, nullptr,
     [](Schedule s, const model::Model& model, const Policy&, Purpose) {
       return insert_kv_cache(std::move(s), model);
     }},
    {"prefetch", For::all, nullptr,
     [](Schedule s, const model::Model& model, const Policy& policy, Purpose) {
       return prefetch(std::move(s), model, policy.compute, policy.prefetch_bytes);
     }},
    {"insert_offload", For::all, nullptr,
     [](Schedule s, const model::Model& model, const Policy& policy, Purpose) {
       return insert_offload(std::move(s), model, policy.offload);
     }},
    {"insert_activation_offload", For::training, nullptr,
     [](Schedule s, const model::Model& model, const Policy& policy, Purpose) {
       return insert_activation_offload(std::move(s), model, policy.activation_offload);
     }},
    {"insert_in_place", For::all, nullptr,
     [](Schedule s, const model::Model& model, const Policy& policy, Purpose) {
       return insert_in_place(std::move(s), model, policy.in_place);
     }},
    {"insert_gradient_memory", For::training, nullptr,
     [](Schedule s, const model::Model& model, const Policy& policy, Purpose) {
       return insert_gradient_memory(std::move(s), model, policy.transient_gradients);
     }},
    {"assign_slots", For::all, &Complete::slots,
     [](Schedule s, const model::Model& model, const Policy&, Purpose) { return assign_slots(std::move(s), model); }},
};

void require_sound(std::string_view pass, const std::vector<std::string>& wrong) {
  invariant(wrong.empty(), fmt::format("the pass {} built an invalid schedule:\n  {}", pass, fmt::join(wrong, "\n  ")));
}

/// Verifies the result of a pass, and measures the time.
void check(PassResult& result, const model::Model& model, int replicas, Complete has) {
  const auto begin = Clock::now();
  const auto wrong = verify(result.schedule, model, replicas, has);
  result.verify_time = Clock::now() - begin;
  require_sound(result.pass, wrong);
}

constexpr Complete nothing{.unshard = false, .reduction = false, .update = false, .slots = false};

/// Properties of a schedule after all passes.
Complete all_added(Purpose purpose) {
  Complete has = nothing;
  for (const NamedPass& pass : passes)
    if (is_for(pass.schedules, purpose) && pass.adds != nullptr) has.*pass.adds = true;
  return has;
}

Schedule unverified(Purpose purpose, const model::Model& model, Schedule order, const Policy& policy) {
  for (const NamedPass& pass : passes)
    if (is_for(pass.schedules, purpose)) order = pass.run(std::move(order), model, policy, purpose);
  return order;
}

/// The schedule after all passes. The order and the result are verified; only a wrong one is built again with every
/// pass verified, which throws and names the pass.
Schedule verified(Purpose purpose, const model::Model& model, const Schedule& order, const Policy& policy) {
  require_sound("compute_order", verify(order, model, policy.replicas, nothing));
  Schedule built = unverified(purpose, model, order, policy);
  if (verify(built, model, policy.replicas, all_added(purpose)).empty()) return built;
  return explain(purpose, model, order, policy).back().schedule;
}

}  // namespace

Policy policy_of(const config::RunConfig& config, const config::Resolved& mesh) {
  const optimizer::OptimizerPlan optimizer(config);
  const auto after_forward =
      config.sync.reshard_after_forward;  // 0: the whole axis, 1: not at all, else the group size
  return {
      .sync = config.sync.policy,
      .reshard = {.after_forward = after_forward != 1,
                  .after_backward = config.sync.reshard_after_backward,
                  .group = after_forward > 1 && after_forward < mesh.shards()
                               ? std::optional(static_cast<int>(after_forward))
                               : std::nullopt},
      .recompute = {.mode = config.memory.recompute, .every = config.memory.recompute_every},
      .activation_offload = {.on = config.memory.activation_offload,
                             .min_bytes = config.memory.activation_offload_min_bytes,
                             .in_flight = config.memory.activation_offload_in_flight},
      .offload = {.what = config.memory.offload, .fraction = config.memory.offload_fraction},
      .in_place = {.shards = mesh.shards(), .gradients = config.precision.reduce != config::Reduce::bf16},
      .prefetch_bytes = config.sync.prefetch_bytes,
      .compute = config.precision.compute,
      .replicas = mesh.replicate,
      // CUDA graphs and NCCL windows require fixed addresses.
      .transient_gradients = !config.device.cuda_graphs && !config.comm.nccl_windows,
      .updates_beside = config.device.type == config::DeviceType::cuda,
      .muon = optimizer.matrices() ? std::optional(MuonPolicy{mesh.shards(), *optimizer.matrices()}) : std::nullopt};
}

std::vector<PassResult> explain(Purpose purpose, const model::Model& model, Schedule order, const Policy& policy) {
  Complete has = nothing;
  std::vector<PassResult> results;
  results.push_back({.pass = "compute_order", .schedule = std::move(order)});
  check(results.back(), model, policy.replicas, has);
  for (const NamedPass& pass : passes) {
    if (!is_for(pass.schedules, purpose)) continue;
    const auto begin = Clock::now();
    results.push_back({.pass = pass.name, .schedule = pass.run(results.back().schedule, model, policy, purpose)});
    results.back().time = Clock::now() - begin;
    if (pass.adds != nullptr) has.*pass.adds = true;
    check(results.back(), model, policy.replicas, has);
  }
  return results;
}

Schedule build_step(const model::Model& model, int microbatches, const Policy& policy) {
  return build_step(model, compute_order(model, microbatches), policy);
}

Schedule build_step(const model::Model& model, const Schedule& order, const Policy& policy) {
  return verified(Purpose::train, model, order, policy);
}

Schedule build_step_unverified(const model::Model& model, int microbatches, const Policy& policy) {
  return build_step_unverified(model, compute_order(model, microbatches), policy);
}

Schedule build_step_unverified(const model::Model& model, Schedule order, const Policy& policy) {
  return unverified(Purpose::train, model, std::move(order), policy);
}

Schedule build_forward(const model::Model& model, const Policy& policy) {
  return build_forward(model, forward_order(model), policy);
}

Schedule build_forward(const model::Model& model, const Schedule& order, const Policy& policy) {
  return verified(Purpose::forward, model, order, policy);
}

Schedule build_generation(const model::Model& model, const Policy& policy) {
  return verified(Purpose::generate, model, forward_order(model), policy);
}

std::string to_text(std::span<const PassResult> results) {
  TextTable table({"pass", "ops", "pass (ms)", "verify (ms)"});
  const auto milliseconds = [](Clock::duration time) {
    return fmt::format("{:.2f}", std::chrono::duration<double, std::milli>(time).count());
  };
  for (const PassResult& result : results)
    table.add({std::string(result.pass), std::to_string(result.schedule.ops.size()), milliseconds(result.time),
               milliseconds(result.verify_time)});
  return table.str();
}

}  // namespace trireme::schedule
