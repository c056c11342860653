// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/choose.hpp"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/base/text_table.hpp"
#include "trireme/model/fp8.hpp"
#include "trireme/model/no_decay.hpp"
#include "trireme/planner/pipeline.hpp"
#include "trireme/planner/rank_bytes.hpp"

namespace trireme::planner {
namespace {

using config::SyncPolicy;

struct Candidate {
  const char* name;
  SyncPolicy policy;
  std::int64_t reshard_after_forward;  ///< 0: yes, 1: no
  bool reshard_after_backward;
};

constexpr std::array candidates{
    Candidate{"deferred, parameters kept until the update", SyncPolicy::deferred, 1, false},
    Candidate{"deferred, parameters kept from forward to backward", SyncPolicy::deferred, 1, true},
    Candidate{"deferred, resharded after forward", SyncPolicy::deferred, 0, true},
    Candidate{"immediate, parameters kept from forward to backward", SyncPolicy::immediate, 1, true},
    Candidate{"immediate, resharded after forward", SyncPolicy::immediate, 0, true},
};

struct Tried {
  config::Sync sync;
  double seconds = 0;
};

/// Accuracy of predictions: a candidate with less traffic is preferred if it is slower by less than that.
constexpr double as_fast = 1.005;

Bytes needs(const config::RunConfig& config, const model::Model& model, const config::Resolved& mesh) {
  if (config.mesh.pipeline > 1) {
    const PipelinePlan plan = bytes_of_pipeline(config, mesh);
    return plan.memory[static_cast<std::size_t>(plan.worst_rank())].total();
  }
  return bytes_of_rank(config, mesh, model).memory.total();
}

}  // namespace

void require_globs(const config::RunConfig& config, const model::Model& model) {
  model::check_fp8_skip(model, model.part.fp8);
  model::check_groups(model, config.optimizer.groups);
  model::check_no_decay(model, config.optimizer.no_decay, config::RunConfig{}.optimizer.no_decay);
}

Trainable trainable(const config::RunConfig& config, int ranks) {
  config::require_trainable(config);
  const config::Resolved mesh = config::resolve(config, ranks);
  Trainable run{.mesh = mesh, .model = model::build(config.model, tensor_part(config, mesh, 0))};
  require_globs(config, run.model);
  return run;
}

Choice choose_sync(const config::RunConfig& config, const model::Model& model, const config::Resolved& mesh,
                   const StepPredictor& step) {
  if (config.sync.policy != SyncPolicy::automatic) return {.sync = config.sync, .reason = ""};
  invariant(config.memory.budget.has_value(), "sync.policy = auto is refused without memory.budget");
  struct Row {
    std::string name, bytes, step;
  };
  std::vector<Row> rows;
  std::optional<std::size_t> taken;
  Tried best;
  for (const Candidate& candidate : candidates) {
    config::RunConfig tried = config;
    tried.sync.policy = candidate.policy;
    tried.sync.reshard_after_forward = candidate.reshard_after_forward;
    tried.sync.reshard_after_backward = candidate.reshard_after_backward;
    const Bytes bytes = needs(tried, model, mesh);
    if (bytes > *config.memory.budget) {
      rows.push_back({candidate.name, to_text(bytes), ""});
      continue;
    }
    const double seconds = step.seconds ? step.seconds(tried) : 0;
    rows.push_back({candidate.name, to_text(bytes), step.seconds ? fmt::format("{:.4g} ms", 1e3 * seconds) : "?"});
    if (taken && seconds * as_fast >= best.seconds) continue;
    taken = rows.size() - 1;
    best = {tried.sync, seconds};
  }
  TextTable table({"candidate, least traffic first", "bytes per rank", "predicted step", ""});
  for (std::size_t i = 0; i < rows.size(); ++i)
    table.add({rows[i].name, rows[i].bytes, rows[i].step,
               rows[i].step.empty() ? "too large"
               : i == taken         ? "taken: the fastest that fits"
                                    : ""});
  if (taken)
    return {
        .sync = best.sync,
        .reason = fmt::format("sync.policy = auto under memory.budget = {}, {}:\n{}", to_text(*config.memory.budget),
                              step.seconds ? "predicted on " + step.machine : "by traffic", table.str())};
  throw ConfigError(
      fmt::format("sync.policy = \"auto\": no policy fits memory.budget = {} on {} ranks. Raise it, take more ranks "
                  "(mesh.shard), or "
                  "lower batch.micro.\n\n{}",
                  to_text(*config.memory.budget), mesh.dp_size(), table.str()));
}

}  // namespace trireme::planner
