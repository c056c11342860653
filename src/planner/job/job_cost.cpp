// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/job/job_cost.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "trireme/base/error.hpp"
#include "trireme/config/validation_sets.hpp"
#include "trireme/optimizer/plan.hpp"
#include "trireme/schedule/passes/build.hpp"

namespace trireme::planner {
namespace {

/// One microbatch forward on every data-parallel rank.
double evaluation_microbatch(const config::RunConfig& config, const config::Resolved& mesh, const Machine& machine) {
  const model::Model model = model::build(config.model, tensor_part(config, mesh, 0));
  const shard::Layout layout(model, mesh.shards());
  const ReplayOptions replay_options = replay_options_of(config, mesh);
  const auto forward = schedule::build_forward(model, schedule::policy_of(config, mesh));
  const Costs costs({.model = model,
                     .layout = layout,
                     .replay_options = replay_options,
                     .mesh = mesh,
                     .seq_len = config.data.seq_len},
                    machine, {});
  return simulate(forward, schedule::needs(forward, model), costs.of(forward), machine.contention).seconds;
}

SaveCost save_cost(const config::RunConfig& config, const Prediction& step, const Machine& machine) {
  const model::Model model = model::build(config.model, tensor_part(config, step.mesh, 0));
  const shard::Layout layout(model, step.mesh.shards());
  const auto shard = static_cast<double>(optimizer::OptimizerPlan(config).saved_bytes(model, layout).value);
  SaveCost save{.bytes = shard * step.mesh.shards() * step.mesh.tensor};
  if (machine.storage_bandwidth == 0 || machine.node_storage_bandwidth == 0) return save;
  const double nodes = std::ceil(step.ranks / machine.gpus_per_node);
  save.written = save.bytes / std::min(machine.storage_bandwidth, nodes * machine.node_storage_bandwidth);
  save.stopped = config.checkpoint.async ? shard / machine.host_bandwidth : save.written;
  save.written += config.checkpoint.async ? save.stopped : 0;
  return save;
}

/// Seconds of the whole job with a save every `interval` seconds of work.
struct Total {
  double saves = 0, failures = 0, lost = 0, seconds = 0;
};

/// A failure costs the restart, loading (as long as writing), half an interval, and the save that was being written.
Total total_with(double work, double interval, const JobCost& cost, const Machine& machine) {
  Total total{.saves = interval > 0 ? work / interval * cost.save.stopped : 0};
  const double up = work + total.saves;
  const double each = machine.restart_seconds + 2 * cost.save.written + (interval > 0 ? interval : work) / 2;
  if (cost.mtbf > 0) {
    if (each >= cost.mtbf) return {.seconds = INFINITY};
    total.failures = up / (cost.mtbf - each);
    total.lost = total.failures * each;
  }
  total.seconds = up + total.lost;
  return total;
}

/// The largest power of two times the suggested interval with which the job takes at most `longer` times as long.
std::int64_t most_steps(const JobCost& cost, const Machine& machine, double longer) {
  const double work = cost.training + cost.evaluation, step = work / cost.steps;
  std::int64_t most = cost.suggested;
  while (static_cast<double>(2 * most) <= cost.steps &&
         total_with(work, static_cast<double>(2 * most) * step, cost, machine).seconds <=
             longer * cost.suggested_seconds)
    most *= 2;
  return most;
}

}  // namespace

double parse_tokens(std::string_view text) {
  double number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  constexpr std::string_view units = "KMBT";
  const bool known = unit.empty() || (unit.size() == 1 && units.find(unit) != std::string_view::npos);
  const double tokens =
      number * (unit.empty() || !known ? 1 : std::pow(1000, 1 + static_cast<double>(units.find(unit))));
  if (problem == std::errc{} && known && tokens >= 1 && tokens <= 1e18) return tokens;
  throw ConfigError(fmt::format("--tokens {}: expected a number of tokens from 1 to 1e18, such as 300M, 15B or 2T",
                                text.substr(0, 40)));
}

double daly_interval(double save, double mtbf) {
  if (save >= 2 * mtbf) return mtbf;
  const double ratio = save / (2 * mtbf);
  return std::sqrt(2 * save * mtbf) * (1 + std::sqrt(ratio) / 3 + ratio / 9) - save;
}

JobCost job_cost(const config::RunConfig& config, int ranks, const Machine& machine, double tokens) {
  JobCost cost{.tokens = tokens, .step = predict(config, ranks, machine)};
  const double step = cost.step.expected.seconds;
  cost.steps = std::ceil(tokens / cost.step.tokens);
  cost.training = cost.steps * step;
  const config::Train& train = config.train;
  if (train.eval_every > 0 && train.eval_steps > 0)
    cost.evaluation = std::floor(cost.steps / static_cast<double>(train.eval_every)) *
                      static_cast<double>(config::validation_sets(config.data).size()) *
                      static_cast<double>(train.eval_steps * cost.step.mesh.accumulation) *
                      evaluation_microbatch(config, cost.step.mesh, machine);
  cost.evaluates_all = train.eval_every > 0 && train.eval_steps == 0;
  cost.save = save_cost(config, cost.step, machine);
  cost.mtbf = machine.gpu_mtbf / ranks;
  const double work = cost.training + cost.evaluation;
  if (cost.mtbf > 0 && cost.save.written > 0) {
    // With checkpoint.async training hardly stops: then writing takes the file system at most a tenth of the time.
    const double interval = std::max(daly_interval(cost.save.stopped, cost.mtbf), 10 * cost.save.written);
    const double a_step = work / cost.steps;
    cost.suggested = std::max({std::int64_t{1}, static_cast<std::int64_t>(std::llround(interval / a_step)),
                               static_cast<std::int64_t>(std::ceil(machine.least_save_interval / a_step))});
    cost.suggested_seconds =
        total_with(work, static_cast<double>(cost.suggested) * work / cost.steps, cost, machine).seconds;
    if (std::isfinite(cost.suggested_seconds)) {
      cost.most = most_steps(cost, machine, 1.01);
      // Such a save costs so little that Daly's interval fills the file system for nothing.
      if (config.checkpoint.async) cost.suggested = most_steps(cost, machine, 1.001);
      cost.suggested_seconds =
          total_with(work, static_cast<double>(cost.suggested) * work / cost.steps, cost, machine).seconds;
      cost.most = std::max(cost.most, cost.suggested);
    }
  }
  cost.every = config.checkpoint.every > 0 ? config.checkpoint.every : cost.suggested;
  const Total total = total_with(work, static_cast<double>(cost.every) * work / cost.steps, cost, machine);
  if (!std::isfinite(total.seconds))
    throw ConfigError(
        fmt::format("plan --tokens: {} rank{} fail every {}, and a failure costs more than that{}", ranks,
                    ranks == 1 ? "" : "s", duration_text(cost.mtbf),
                    cost.suggested > 0 && std::isfinite(cost.suggested_seconds)
                        ? fmt::format("; set checkpoint.every = {}", cost.suggested)
                        : "; take fewer ranks, faster storage or a faster restart (machine file, [job])"));
  cost.saves = total.saves;
  cost.failures = total.failures;
  cost.lost = total.lost;
  return cost;
}

}  // namespace trireme::planner
