// SPDX-License-Identifier: Apache-2.0
#include "cli/start/trial.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/base/units.hpp"
#include "trireme/report/run_record.hpp"

namespace trireme::cli {
namespace {

std::string duration(double seconds) {
  if (seconds < 120) return fmt::format("{:.2g} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  if (seconds < 172800) return fmt::format("{:.1f} h", seconds / 3600);
  return fmt::format("{:.1f} days", seconds / 86400);
}

/// The median of the steps after the first, which also allocates and tunes.
double usual_step_seconds(const report::RunRecord& run) {
  std::vector<double> seconds;
  for (const report::Point& point : run.series.at("step_seconds")) seconds.push_back(point.y);
  if (seconds.size() > 1) seconds.erase(seconds.begin());
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

/// The highest value of a curve; 0 without one.
double peak(const report::RunRecord& run, const std::string& key) {
  const auto found = run.series.find(key);
  if (found == run.series.end() || found->second.empty()) return 0;
  return std::ranges::max(found->second, {}, &report::Point::y).y;
}

std::string bytes(double count) { return to_text(Bytes{static_cast<std::int64_t>(count)}); }

std::string memory_line(const config::RunConfig& config, const report::RunRecord& run) {
  const double device = peak(run, "memory_peak_bytes/device/total");
  const double host = peak(run, "memory_peak_bytes/host/total");
  std::string line = fmt::format("try: memory of rank 0: {} of buffers", bytes(device));
  if (host > 0) line += fmt::format(" and {} in host memory", bytes(host));
  line += fmt::format("; its process holds {}", bytes(peak(run, "memory_peak_bytes/rss")));
  if (config.memory.budget) {
    const auto budget = static_cast<double>(config.memory.budget->value);
    line += fmt::format("; memory.budget = {}: {}", bytes(budget), device <= budget ? "it fits" : "it does NOT fit");
  }
  if (config.checkpoint.async && (config.checkpoint.every > 0 || config.checkpoint.at_end))
    line += "; saves add a copy of the state in host memory (checkpoint.async)";
  return line + "\n";
}

}  // namespace

TrialDirectory::TrialDirectory() {
  path_ = (std::filesystem::temp_directory_path() / "trireme-try-XXXXXX").string();
  if (::mkdtemp(path_.data()) == nullptr)
    throw WriteError(fmt::format("--try: cannot make the folder {}: {}; set TMPDIR", path_, std::strerror(errno)));
}

TrialDirectory::~TrialDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

config::RunConfig trial_of(config::RunConfig config, std::int64_t steps, const std::string& output) {
  config.train.steps = steps;
  config.train.tokens.reset();
  config.lr.warmup_tokens.reset();
  config.train.eval_every = config.train.choices_every = 0;
  config.lr.warmup_steps = std::min<std::int64_t>(config.lr.warmup_steps, 1);
  config.run.output = output;
  config.run.export_when = config::Export::never;
  config.checkpoint.directory = output + "/checkpoints";
  config.checkpoint.every = 0;
  config.checkpoint.at_end = false;
  config.checkpoint.keep_best.reset();
  config.checkpoint.resume = "none";
  config.metrics.every = 1;
  config.metrics.trace_steps.clear();
  config.metrics.memory_snapshot = false;
  config.metrics.tensorboard = false;
  config.metrics.report = false;
  return config;
}

std::string trial_verdict(const config::RunConfig& config, int ranks, const std::string& output) {
  const report::RunRecord run = report::read_run(output);
  const report::Points& steps = run.series.at("step");
  const auto found = run.series.find("loss");
  const std::string losses =
      found == run.series.end() ? "no loss"
                                : fmt::format("loss {:.4f} to {:.4f}", found->second.front().y, found->second.back().y);
  const double seconds = usual_step_seconds(run);
  const double tokens = static_cast<double>(config.batch.global * config.data.seq_len);
  std::string text = fmt::format(
      "\ntry: {} of {} steps trained, {}{}{}{}; nothing is kept\n", steps.size(), config.train.steps, losses,
      run.skipped > 0 ? fmt::format(", {} steps were skipped (not finite)", run.skipped) : "",
      run.spikes > 0 ? fmt::format(", {} steps were skipped (spikes)", run.spikes) : "",
      run.without_targets > 0 ? fmt::format(", {} steps were skipped (no target counts)", run.without_targets) : "");
  text += fmt::format(
      "try: speed: {:.3g} s a step after the first, {} tokens/s ({} a rank): {} steps take {}, without evaluations and "
      "saves\n",
      seconds, to_short_text(tokens / seconds), to_short_text(tokens / seconds / ranks), config.train.steps,
      duration(seconds * static_cast<double>(config.train.steps)));
  return text + memory_line(config, run);
}

}  // namespace trireme::cli
