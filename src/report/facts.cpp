// SPDX-License-Identifier: Apache-2.0
#include "report/facts.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "report/chart.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/text.hpp"
#include "trireme/base/units.hpp"
#include "trireme/config/load.hpp"
#include "trireme/config/names.hpp"
#include "trireme/model/model.hpp"
#include "trireme/report/page.hpp"

namespace trireme::report {
namespace {

using Facts = std::vector<std::pair<std::string, std::string>>;

constexpr std::size_t warm_up = 3;       // steps
constexpr double long_wait = 0.1;        // of a step, for data
constexpr double straggler_ratio = 1.3;  // of a rank's median to the smallest

constexpr std::size_t around = 101;          // steps whose median is usual
constexpr double norm_spike = 10;            // over the usual
constexpr double loss_rise = 0.1;            // of the usual
constexpr double loss_distance = 12;         // over the usual distance from the median
constexpr std::size_t least_smoothed = 100;  // points
constexpr std::size_t listed = 8;            // steps named in a warning

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

/// Settings that differ between runs that are compared for speed; none if the run file does not fit the ranks.
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

double last_of(const RunRecord& run, const std::string& key) {
  return series(run, key).empty() ? 0 : series(run, key).back().y;
}

std::int64_t steps_of(const RunRecord& run) { return std::llround(last_of(run, "step")); }

int ranks_of(const RunRecord& run) {
  const double per_rank = last_of(run, "tokens_per_second_per_rank");
  return per_rank > 0 ? static_cast<int>(std::lround(last_of(run, "tokens_per_second") / per_rank)) : 0;
}

/// "step 31", "steps 31, 57 and 4 more".
std::string steps_text(const std::vector<double>& steps) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(listed, steps.size()); ++i) names.push_back(fmt::format("{}", steps[i]));
  return fmt::format("step{} {}{}", steps.size() == 1 ? "" : "s", join(names, ", "),
                     steps.size() > listed ? fmt::format(" and {} more", steps.size() - listed) : "");
}

/// The points that `high(value, median)` holds for. The first ones, of the learning rate's warm-up, are left out.
template <class High>
Spikes spikes(const RunRecord& run, const Points& points, const std::vector<double>& medians, High&& high) {
  const double warm = run.config ? static_cast<double>(run.config->lr.warmup_steps) : 0;
  Spikes out;
  for (std::size_t i = warm_up; i < points.size(); ++i) {
    if (points[i].x <= warm || !high(points[i].y, medians[i])) continue;
    out.points.push_back(points[i]);
    if (out.points.size() == 1 || points[i].y > out.highest.y) {
      out.highest = points[i];
      out.usual = medians[i];
    }
  }
  return out;
}

std::vector<double> steps_of(const Points& points) {
  std::vector<double> steps;
  for (const Point& point : points) steps.push_back(point.x);
  return steps;
}

Figure loss_figure(const RunRecord& run, const LastLoss& last) {
  Figure figure{.name = "loss", .text = fmt::format("{:.4g}", last.value), .note = ""};
  figure.note = last.steps > 1 ? fmt::format("mean of the last {} points", last.steps) : "last step";
  figure.note += fmt::format(", {:.4g} at first", series(run, "loss").front().y);
  if (const auto best = best_validation(run))
    figure.note += fmt::format("; validation {:.4g} at step {}", best->y, best->x);
  return figure;
}

Figure time_figure(const RunRecord& run, double seconds) {
  const double step = median(series(run, "step_seconds"));
  Figure figure{.name = "time", .text = duration_text(seconds), .note = ""};
  figure.note = fmt::format("{} steps of {}", steps_of(run), text_of(step, Unit::seconds));
  if (run.config && !has_ended(run))
    figure.note += fmt::format("; {} more, about {}", run.config->train.steps - steps_of(run),
                               duration_text(step * static_cast<double>(run.config->train.steps - steps_of(run))));
  return figure;
}

}  // namespace

bool has_ended(const RunRecord& run) { return run.config && steps_of(run) >= run.config->train.steps; }

double highest(const Points& points) {
  double most = 0;
  for (const Point& point : points) most = std::max(most, point.y);
  return most;
}

std::size_t smoothing_window(std::size_t points) { return points < least_smoothed ? 1 : points / 100 * 2 + 1; }

std::optional<LastLoss> last_loss(const RunRecord& run) {
  const Points& loss = series(run, "loss");
  if (loss.empty()) return std::nullopt;
  LastLoss last{.value = 0, .steps = smoothing_window(loss.size())};
  for (std::size_t i = loss.size() - last.steps; i < loss.size(); ++i)
    last.value += loss[i].y / static_cast<double>(last.steps);
  return last;
}

std::optional<Point> best_validation(const RunRecord& run) {
  const Points& eval = series(run, "eval_loss");
  if (eval.empty()) return std::nullopt;
  return *std::min_element(eval.begin(), eval.end(), [](auto& a, auto& b) { return a.y < b.y; });
}

Points elapsed(const RunRecord& run) {
  Points out;
  const Points& seconds = series(run, "step_seconds");
  double before = 0, sum = 0;
  auto start = run.starts.begin();
  auto of_step = seconds.begin();
  for (const Point& time : series(run, "time")) {
    while (of_step != seconds.end() && of_step->x < time.x) ++of_step;
    const bool starts = out.empty() || (start != run.starts.end() && time.x >= *start);
    if (starts && !out.empty()) ++start;
    sum += !starts ? std::max(0.0, time.y - before) : of_step != seconds.end() ? of_step->y : 0;
    before = time.y;
    out.push_back({time.x, sum});
  }
  return out;
}

std::vector<Figure> figures(const RunRecord& run) {
  std::vector<Figure> list;
  if (const auto last = last_loss(run)) list.push_back(loss_figure(run, *last));
  const double speed = median(series(run, "tokens_per_second"));
  Figure tokens{.name = "tokens/s", .text = text_of(speed, Unit::count), .note = "median"};
  if (const Points& mfu = series(run, "mfu"); !mfu.empty())
    tokens.note += fmt::format(", MFU {}", text_of(median(mfu), Unit::share));
  if (const int ranks = ranks_of(run); ranks > 1)
    tokens.note += fmt::format("; {} a rank", text_of(speed / ranks, Unit::count));
  if (speed > 0) list.push_back(tokens);
  if (const Points time = elapsed(run); !time.empty()) list.push_back(time_figure(run, time.back().y));
  if (const double device = highest(series(run, "memory_peak_bytes/device/total")); device > 0)
    list.push_back({.name = "memory",
                    .text = text_of(device, Unit::bytes),
                    .note = fmt::format("peak of rank 0; resident set {}",
                                        text_of(highest(series(run, "memory_peak_bytes/rss")), Unit::bytes))});
  return list;
}

std::string origin(const RunRecord& run) {
  std::vector<std::string> parts;
  if (const Points& time = series(run, "time"); !time.empty() && time.front().y > 0 && time.front().y < 1e11)
    parts.push_back(fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(static_cast<std::time_t>(time.front().y))));
  if (const int ranks = ranks_of(run); ranks > 0)
    parts.push_back(
        fmt::format("{} rank{}{}", ranks, ranks == 1 ? "" : "s", run.device.empty() ? "" : " on " + run.device));
  if (!run.version.empty()) parts.push_back("Trireme " + run.version);
  return join(parts, ", ");
}

Spikes gradient_spikes(const RunRecord& run) {
  const Points& norms = series(run, "grad_norm");
  return spikes(run, norms, running_median(norms, around),
                [](double value, double usual) { return usual > 0 && value > norm_spike * usual; });
}

Spikes loss_spikes(const RunRecord& run) {
  const Points& loss = series(run, "loss");
  const std::vector<double> medians = running_median(loss, around);
  Points distances;
  for (std::size_t i = 0; i < loss.size(); ++i) distances.push_back({loss[i].x, std::abs(loss[i].y - medians[i])});
  const double distance = median(distances);
  return spikes(run, loss, medians, [distance](double value, double usual) {
    return value - usual > std::max(loss_rise * usual, loss_distance * distance);
  });
}

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
  const std::int64_t steps = steps_of(run);
  if (const int ranks = ranks_of(run); ranks > 0) {
    list.emplace_back("ranks", std::to_string(ranks));
    if (run.config) add_mesh(list, *run.config, ranks);
  }
  list.emplace_back("steps",
                    run.config ? fmt::format("{} of {}", steps, run.config->train.steps) : std::to_string(steps));
  list.emplace_back("tokens",
                    text_of(last_of(run, "tokens"), Unit::count) +
                        (series(run, "epoch").empty() ? "" : fmt::format(" ({:.3g} epochs)", last_of(run, "epoch"))));
  if (const Points& loss = series(run, "loss"); !loss.empty())
    list.emplace_back("last loss", text_of(loss.back().y, Unit::number));
  if (const auto best = best_validation(run))
    list.emplace_back("best validation loss",
                      fmt::format("{:.5g} (step {}), perplexity {:.4g}", best->y, best->x, std::exp(best->y)));
  list.emplace_back("step, median", text_of(median(series(run, "step_seconds")), Unit::seconds));
  list.emplace_back("tokens/s, median", text_of(median(series(run, "tokens_per_second")), Unit::count));
  if (const Points& mfu = series(run, "mfu"); !mfu.empty())
    list.emplace_back("MFU, median", text_of(median(mfu), Unit::share));
  if (const Points& padding = series(run, "packing/padding"); !padding.empty()) {
    list.emplace_back("padding, best-fit packing", text_of(padding.back().y, Unit::share));
    for (const auto& [name, key] :
         {std::pair{"documents cut", "packing/cut"}, {"documents cut if concatenated", "packing/cut_concatenated"}})
      if (const Points& cut = series(run, key); !cut.empty())
        list.emplace_back(name, text_of(cut.back().y, Unit::share));
  }
  list.emplace_back("waiting for communication", text_of(share_of_steps(run, "exposed_comm_seconds"), Unit::share));
  list.emplace_back("waiting for data", text_of(share_of_steps(run, "data_seconds"), Unit::share));
  for (const auto& [name, key] : {std::pair{"device memory, peak of rank 0", "memory_peak_bytes/device/total"},
                                  {"host memory, peak of rank 0", "memory_peak_bytes/host/total"},
                                  {"resident set, peak of rank 0", "memory_peak_bytes/rss"}}) {
    const Points& points = series(run, key);
    if (points.empty()) continue;
    list.emplace_back(name, text_of(highest(points), Unit::bytes));
  }
  if (run.goodput)
    list.emplace_back("goodput", fmt::format("{} of {}", text_of(run.goodput->share(), Unit::share),
                                             duration_text(run.goodput->total())));
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
  const std::int64_t steps = steps_of(run);
  add(run.config && steps < run.config->train.steps,
      fmt::format("not finished: {} of {} steps", steps, run.config ? run.config->train.steps : 0));
  const std::string at = run.skipped_at.empty() ? "" : fmt::format(" ({})", steps_text(run.skipped_at));
  add(run.spikes > 0, fmt::format("{} steps were skipped as spikes (train.skip_spikes){}", run.spikes, at));
  add(run.skipped > 0, fmt::format("{} steps were skipped: loss or gradient norm was not finite{}", run.skipped, at));
  add(run.without_targets > 0,
      fmt::format("{} steps were skipped: no target counted (masks of data.train, data.ignore_targets)",
                  run.without_targets));
  add(run.not_finite > 0, fmt::format("the loss of {} steps is not finite", run.not_finite));
  if (const Spikes norms = gradient_spikes(run); !norms.points.empty())
    list.push_back(fmt::format(
        "the gradient norm rose to {:.3g} at step {}, {:.3g} times the median of the steps around it; above {} times "
        "at {}",
        norms.highest.y, norms.highest.x, norms.highest.y / norms.usual, norm_spike,
        steps_text(steps_of(norms.points))));
  if (const Spikes losses = loss_spikes(run); !losses.points.empty())
    list.push_back(fmt::format("the loss rose to {:.4g} at step {}, where {:.4g} is usual; such spikes: {}",
                               losses.highest.y, losses.highest.x, losses.usual, steps_text(steps_of(losses.points))));
  add(!run.hang_reports.empty(), "hang reports were left: " + join(run.hang_reports, ", "));
  add(share_of_steps(run, "data_seconds") > long_wait,
      fmt::format(
          "{} of a step's time is spent waiting for data: raise data.prefetch_batches, or use a faster file system",
          text_of(share_of_steps(run, "data_seconds"), Unit::share)));
  for (const auto& [nodes, at] : run.stragglers)
    list.push_back(
        fmt::format("node {} was a straggler, seen from step {} to {}: up to {:.2f} times the median over nodes", nodes,
                    at.front(), at.back(), highest(series(run, "slowest_node_ratio"))));
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
