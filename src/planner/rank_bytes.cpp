// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/rank_bytes.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include "planner/few_microbatches.hpp"
#include "trireme/schedule/passes/build.hpp"
#include "trireme/schedule/text.hpp"
#include "trireme/shard/layout.hpp"

namespace trireme::planner {
namespace {

/// Text of an op; the last of the built microbatches is shown as the last of all.
std::string text_of(schedule::Op op, const model::Model& model, int built, int all) {
  std::visit(
      [&](auto& verb) {
        if constexpr (requires { verb.microbatch; })
          if (verb.microbatch.value == built - 1) verb.microbatch = Microbatch{all - 1};
      },
      op);
  return schedule::print(op, model);
}

}  // namespace

Traffic extrapolated(const Traffic& a, Traffic b, std::int64_t times) {
  for (auto& [group, operations] : b)
    for (auto& [operation, moved] : operations) {
      Moved before;
      if (const auto of_group = a.find(group); of_group != a.end())
        if (const auto found = of_group->second.find(operation); found != of_group->second.end())
          before = found->second;
      moved.bytes.value += times * (moved.bytes.value - before.bytes.value);
      moved.calls += times * (moved.calls - before.calls);
    }
  return b;
}

RankBytes bytes_of_rank(const config::RunConfig& config, const config::Resolved& mesh, const model::Model& model,
                        bool verified) {
  const schedule::Policy policy = schedule::policy_of(config, mesh);
  const shard::Layout layout(model, mesh.shards());
  const ReplayOptions replay_options = replay_options_of(config, mesh);
  const auto step_of = [&](int microbatches) {
    return verified ? schedule::build_step(model, microbatches, policy)
                    : schedule::build_step_unverified(model, microbatches, policy);
  };
  const int all = mesh.accumulation, built = std::min(all, most_microbatches);
  RankBytes out{.step = step_of(built)};
  out.memory = replay_memory(out.step, model, layout, replay_options);
  out.traffic = replay_traffic(out.step, model, layout, replay_options);
  out.ops = static_cast<std::int64_t>(out.step.ops.size());
  if (all == built) return out;
  const schedule::Schedule fewer = schedule::build_step_unverified(model, built - 1, policy);
  out.traffic = extrapolated(replay_traffic(fewer, model, layout, replay_options), std::move(out.traffic), all - built);
  out.ops += (all - built) * (out.ops - static_cast<std::int64_t>(fewer.ops.size()));
  const auto name = [&](int op) { return text_of(out.step.ops[static_cast<std::size_t>(op)], model, built, all); };
  if (!out.memory.activations_peak.empty()) out.memory.activations_peak = name(out.memory.activations_peak_op);
  if (!out.memory.peak.empty()) out.memory.peak = name(out.memory.at_once.op);
  return out;
}

}  // namespace trireme::planner
