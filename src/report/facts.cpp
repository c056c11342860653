// SPDX-License-Identifier: Apache-2.0
#include "report/facts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/chart.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/text.hpp"
#include "trireme/config/load.hpp"
#include "trireme/config/names.hpp"
#include "trireme/model/model.hpp"

namespace trireme::report {
namespace {

using Facts = std::vector<std::pair<std::string, std::string>>;

constexpr std::size_t warm_up = 3;       // steps
constexpr double long_wait = 0.1;        // of a step, for data
constexpr double straggler_ratio = 1.3;  // of a rank's median to the smallest

std::string model_text(const config::Model& model) {
  std::string text = fmt::format("{}, {} layers, hidden {}", model.architecture, model.layers, model.hidden_size);
  try {
    text += fmt::format(", {} parameters", text_of(static_cast<double>(model::build(model).elements()), Unit::count));
  } catch (const Error&) {  // of a version with other rules
  }
  return text;
}

void add_config(Facts& facts, const config::RunConfig& c) {
  facts.emplace_back("model", model_text(c.model));
  facts.emplace_back("batch", fmt::format("{} sequences of {} tokens, microbatches of {}", c.batch.global,
                                          c.data.seq_len, c.batch.micro));
  facts.emplace_back("compute", c.precision.fp8 == Fp8::none ? std::string(to_text(c.precision.compute))
                                                             : fmt::format("{}, fp8 {}", to_text(c.precision.compute),
                                                                           config::to_text(c.precision.fp8)));
  facts.emplace_back("gradients", config::to_text(c.sync.policy));
  facts.emplace_back("learning rate", fmt::format("{:.4g}, {}", c.optimizer.lr, config::to_text(c.lr.schedule)));
}

/// Settings that differ between runs that are compared for speed; none where the run file does not fit the ranks.
void add_mesh(Facts& facts, const config::RunConfig& c, int ranks) {
  try {
    facts.emplace_back("mesh", config::resolve(c, ranks).text());
  } catch (const Error&) {  // a later start, on other ranks, wrote it
  }
  std::string memory = fmt::format("recompute {}", config::to_text(c.memory.recompute));
  if (c.memory.offload != config::Offload::none)
    memory += fmt::format(", offload {}", config::to_text(c.memory.offload));
  if (c.memory.activation_offload) memory += ", activations offloaded";
  facts.emplace_back("memory settings", memory);
}

/// The share of the steps' time that `key` takes.
double share_of_steps(const RunRecord& run, const std::string& key) {
  const double step = median(series(run, "step_seconds"));
  return step > 0 ? median(series(run, key)) / step : 0;
}

}  // namespace

const Points& series(const RunRecord& run, const std::string& key) {
  static const Points none;
  const auto found = run.series.find(key);
  return found == run.series.end() ? none : found->second;
}

double median(const Points& points) {
  std::vector<double> values;
  for (std::size_t i = points.size() > 2 * warm_up ? warm_up : 0; i < points.size(); ++i) values.push_back(points[i].y);
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Facts facts(const RunRecord& run) {
  Facts list;
  if (run.config) add_config(list, *run.config);
  const auto last = [&](const char* key) { return series(run, key).empty() ? 0.0 : series(run, key).back().y; };
  const auto steps = static_cast<std::int64_t>(series(run, "step").empty() ? 0 : series(run, "step").back().y);
  if (const double per_rank = last("tokens_per_second_per_rank"); per_rank > 0) {
    const auto ranks = static_cast<int>(std::lround(last("tokens_per_second") / per_rank));
    list.emplace_back("ranks", std::to_string(ranks));
    if (run.config) add_mesh(list, *run.config, ranks);
  }
  list.emplace_back("steps",
                    run.config ? fmt::format("{} of {}", steps, run.config->train.steps) : std::to_string(steps));
  list.emplace_back("tokens", text_of(last("tokens"), Unit::count) +
                                  (series(run, "epoch").empty() ? "" : fmt::format(" ({:.3g} epochs)", last("epoch"))));
  if (const Points& loss = series(run, "loss"); !loss.empty())
    list.emplace_back("last loss", text_of(loss.back().y, Unit::number));
  if (const Points& eval = series(run, "eval_loss"); !eval.empty()) {
    const Point best = *std::min_element(eval.begin(), eval.end(), [](auto& a, auto& b) { return a.y < b.y; });
    list.emplace_back("best validation loss",
                      fmt::format("{:.5g} (step {}), perplexity {:.4g}", best.y, best.x, std::exp(best.y)));
  }
  list.emplace_back("step, median", text_of(median(series(run, "step_seconds")), Unit::seconds));
  list.emplace_back("tokens/s, median", text_of(median(series(run, "tokens_per_second")), Unit::count));
  if (const Points& mfu = series(run, "mfu"); !mfu.empty())
    list.emplace_back("MFU, median", text_of(median(mfu), Unit::share));
  list.emplace_back("waiting for communication", text_of(share_of_steps(run, "exposed_comm_seconds"), Unit::share));
  list.emplace_back("waiting for data", text_of(share_of_steps(run, "data_seconds"), Unit::share));
  for (const auto& [name, key] : {std::pair{"device memory, peak of rank 0", "memory_peak_bytes/device/total"},
                                  {"host memory, peak of rank 0", "memory_peak_bytes/host/total"},
                                  {"resident set, peak of rank 0", "memory_peak_bytes/rss"}}) {
    const Points& points = series(run, key);
    if (points.empty()) continue;
    const auto most = std::max_element(points.begin(), points.end(), [](auto& a, auto& b) { return a.y < b.y; });
    list.emplace_back(name, text_of(most->y, Unit::bytes));
  }
  if (!run.starts.empty()) list.emplace_back("restarts", std::to_string(run.starts.size()));
  if (!run.checkpoints.empty())
    list.emplace_back("checkpoints", fmt::format("{}, newest {}", run.checkpoints.size(), run.checkpoints.back()));
  return list;
}

std::vector<std::string> warnings(const RunRecord& run) {
  std::vector<std::string> list;
  const auto add = [&](bool holds, const std::string& text) {
    if (holds) list.push_back(text);
  };
  const std::int64_t steps = static_cast<std::int64_t>(series(run, "step").empty() ? 0 : series(run, "step").back().y);
  add(run.config && steps < run.config->train.steps,
      fmt::format("not finished: {} of {} steps", steps, run.config ? run.config->train.steps : 0));
  add(run.skipped > 0, fmt::format("{} steps were skipped: loss or gradient norm was not finite", run.skipped));
  add(run.without_targets > 0,
      fmt::format("{} steps were skipped: no target counted (masks of data.train, data.ignore_targets)",
                  run.without_targets));
  add(run.not_finite > 0, fmt::format("the loss of {} steps is not finite", run.not_finite));
  add(!run.hang_reports.empty(), "hang reports were left: " + join(run.hang_reports, ", "));
  add(share_of_steps(run, "data_seconds") > long_wait,
      fmt::format(
          "{} of a step's time is spent waiting for data: raise data.prefetch_batches, or use a faster file system",
          text_of(share_of_steps(run, "data_seconds"), Unit::share)));
  if (!run.ranks.empty()) {
    const auto [least, most] = std::minmax_element(
        run.ranks.begin(), run.ranks.end(), [](auto& a, auto& b) { return a.median_seconds < b.median_seconds; });
    add(most->median_seconds > straggler_ratio * least->median_seconds,
        fmt::format("{} is the slowest: its own part of a step takes {}, that of {} {}", most->name,
                    text_of(most->median_seconds, Unit::seconds), least->name,
                    text_of(least->median_seconds, Unit::seconds)));
  }
  return list;
}

}  // namespace trireme::report
