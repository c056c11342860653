// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "trireme/base/text_table.hpp"
#include "trireme/planner/job/job_cost.hpp"

namespace trireme::planner {
namespace {

/// Three significant digits, or all before the point.
std::string digits(double value) {
  return value >= 99.95 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

std::string days_text(double seconds) {
  const double days = seconds / 86400;
  return days >= 1 ? digits(days) + " days" : duration_text(seconds);
}

std::string save_text(double seconds) {
  return seconds >= 1 ? duration_text(seconds) : fmt::format("{:.0f} ms", 1e3 * seconds);
}

std::string energy_text(double joules) {
  const double kwh = joules / 3.6e6;
  return kwh >= 1000 ? digits(kwh / 1000) + " MWh" : digits(kwh) + " kWh";
}

/// Bytes that saves every `steps` steps write in a day.
std::string daily_text(const JobCost& cost, std::int64_t steps) {
  const double interval = static_cast<double>(steps) * (cost.training + cost.evaluation) / cost.steps;
  return to_short_text(cost.save.bytes / interval * 86400) + "B a day";
}

std::string interval_note(const JobCost& cost) {
  const double step = (cost.training + cost.evaluation) / cost.steps;
  if (cost.suggested == 0)
    return "no checkpoint.every is suggested: the machine file's [job] has no gpu_mtbf_hours or no storage_gb_s\n";
  std::string text = fmt::format(
      "a save is {}: training stands still for {}, it is complete after {}; a failure is expected every {}\n"
      "suggested: checkpoint.every = {} (every {}; {}; Daly 2006); up to {} ({}) the job takes at most 1% "
      "longer; a floor: --checkpoint-minutes, or job.checkpoint_minutes of the machine file",
      to_text(Bytes{static_cast<std::int64_t>(cost.save.bytes)}), save_text(cost.save.stopped),
      save_text(cost.save.written), duration_text(cost.mtbf), cost.suggested,
      duration_text(static_cast<double>(cost.suggested) * step), daily_text(cost, cost.suggested), cost.most,
      daily_text(cost, cost.most));
  if (cost.every == cost.suggested) return text + "\n";
  return text + fmt::format("; with the run file's {} ({}) the job takes {:.1f}% longer\n", cost.every,
                            daily_text(cost, cost.every), 100 * (cost.seconds() / cost.suggested_seconds - 1));
}

}  // namespace

std::string to_text(const JobCost& cost, const Machine& machine) {
  TextTable table({fmt::format("{} tokens on {} rank{}", to_short_text(cost.tokens), cost.step.ranks,
                               cost.step.ranks == 1 ? "" : "s"),
                   "time", "of it", "GPU-hours", machine.watts > 0 ? "energy" : ""});
  const auto add = [&](const std::string& name, double seconds) {
    if (seconds <= 0) return;
    const double gpu_seconds = seconds * cost.step.ranks;
    table.add({name, days_text(seconds), fmt::format("{:.1f}%", 100 * seconds / cost.seconds()),
               to_short_text(gpu_seconds / 3600), machine.watts > 0 ? energy_text(gpu_seconds * machine.watts) : ""});
  };
  add(fmt::format("{:.0f} steps of {} tokens", cost.steps, to_short_text(cost.step.tokens)), cost.training);
  add("evaluation", cost.evaluation);
  add(fmt::format("saves, every {} steps", cost.every), cost.saves);
  add(fmt::format("{:.1f} failures: restarts, loading, steps again", cost.failures), cost.lost);
  add("total", cost.seconds());
  const double fast = cost.step.fast / cost.step.expected.seconds, slow = cost.step.slow / cost.step.expected.seconds;
  const char* note =
      cost.evaluates_all ? "evaluations of all validation data are not counted: set train.eval_steps\n" : "";
  return fmt::format("{}p10 to p90 of the network: {} to {}\n{}{}", table.str(), days_text(cost.seconds() * fast),
                     days_text(cost.seconds() * slow), note, interval_note(cost));
}

}  // namespace trireme::planner
