// SPDX-License-Identifier: Apache-2.0
#include "cli/plan_compare.hpp"

#include <fmt/format.h>

#include "cli/plan_time.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/base/text.hpp"
#include "trireme/planner/choose.hpp"
#include "trireme/planner/compare/compare.hpp"

namespace trireme::cli {
namespace {

constexpr std::int64_t most_bytes = std::int64_t{1} << 30;

bool there(const std::string& path) { return io::status_of(path).kind != io::PathKind::nothing; }

config::RunConfig effective_run_file(const std::string& directory) {
  for (const char* name : {"/run.effective.toml", "/run.toml"})
    if (there(directory + name)) return config::load_run_file(directory + name);
  throw ConfigError(fmt::format("--compare {}: holds no run.toml; give the run.output of a training", directory));
}

}  // namespace

void plan_compare(const std::string& directory, const std::string& machine, const CompleteModel& complete) {
  config::RunConfig config = complete(effective_run_file(directory));
  const std::string metrics = directory + "/metrics.jsonl", trace = directory + "/trace-rank0.json";
  if (!there(metrics))
    throw ConfigError(
        fmt::format("--compare {}: holds no metrics.jsonl; give the run.output of a training", directory));
  const planner::MeasuredRun run = planner::read_measured_run(
      io::read_text(metrics, most_bytes), there(trace) ? io::read_text(trace, most_bytes) : "", directory);
  const config::Resolved mesh = config::resolve(config, run.ranks);
  const model::Model model = model::build(config.model, planner::tensor_part(config, mesh, 0));
  config.sync = planner::choose_sync(config, model, mesh).sync;
  const auto on = machine.empty() ? std::nullopt : std::optional(load_machine_here(machine));
  fmt::print("{}", printable_lines(planner::compare(config, run, on)));
}

}  // namespace trireme::cli
