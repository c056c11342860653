// SPDX-License-Identifier: Apache-2.0
// Predictions as text.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "trireme/base/error.hpp"
#include "trireme/base/text.hpp"
#include "trireme/base/text_table.hpp"
#include "trireme/planner/time/predict.hpp"
#include "trireme/schedule/text.hpp"

namespace trireme::planner {
namespace {

using schedule::Lane;

std::string seconds_text(double seconds) {
  if (seconds >= 1) return fmt::format("{:.3g} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.3g} ms", seconds * 1e3);
  return fmt::format("{:.3g} us", seconds * 1e6);
}

Bytes whole(double bytes) { return {static_cast<std::int64_t>(bytes)}; }

std::string grade_note(const Prediction& prediction, const Machine& machine) {
  std::string text = fmt::format("calculated from {} ({}): {}", machine.name, machine.about,
                                 machine.grade == Grade::measured ? "measured"
                                 : machine.grade == Grade::fitted ? "fitted to published runs of another trainer, "
                                                                    "Trireme's own kernels may differ by 15%"
                                                                  : "nominal numbers, expect 15%");
  const double nodes = prediction.ranks / machine.gpus_per_node;
  if (nodes > 4 * machine.measured_nodes)
    text += fmt::format(
        "\nwarning: {:.0f} nodes planned, links known for {:.0f}: expect 20% until a larger job was measured", nodes,
        machine.measured_nodes);
  if (prediction.mesh.pipeline > 1)
    text += "\nwarning: a pipeline's time is simulated, but has not been compared with measured runs of Trireme";
  if (prediction.mesh.tensor > machine.gpus_per_node)
    text += "\nwarning: tensor parallelism across nodes is not validated";
  return text;
}

std::string memory_verdict(const Prediction& prediction, const Machine& machine) {
  const Bytes needed = prediction.memory.total();
  return fmt::format("{} of {}{}", to_text(needed), to_text(machine.memory),
                     needed > machine.memory ? ": DOES NOT FIT" : "");
}

}  // namespace

std::string to_text(const Prediction& prediction, const Machine& machine) {
  const StepTime& step = prediction.expected;
  TextTable table(
      {prediction.mesh.pipeline > 1 ? "a step of the pipeline rank that computes longest takes" : "a step takes", "",
       "of it"});
  const auto add = [&](const std::string& name, double seconds) {
    if (seconds > 0) table.add({name, seconds_text(seconds), fmt::format("{:.1f}%", 100 * seconds / step.seconds)});
  };
  add("compute", step.compute);
  add("compute, longer because of communication beside it", step.contention);
  for (const Lane lane : schedule::all_lanes)
    if (lane != Lane::compute)
      add(fmt::format("waits for the {} lane", schedule::to_text(lane)), step.waits[static_cast<std::size_t>(lane)]);
  add("not modelled (step_ms)", step.fixed);
  add("total", step.seconds);
  std::string text = table.str();
  text += fmt::format(
      "\nstep time {} ({} to {}, p10 to p90), tokens/s {} ({:.4g} per rank), MFU {:.1f}% of {:.4g} TFLOP/s\n",
      seconds_text(step.seconds), seconds_text(prediction.fast), seconds_text(prediction.slow),
      to_short_text(prediction.tokens_per_second()), prediction.tokens_per_second() / prediction.ranks,
      100 * prediction.mfu, machine.peak_flops / 1e12);
  text += fmt::format("  FLOPs: {}\n", model::flop_rule());
  text += fmt::format("sent by a rank and step: {} inside nodes, {} between nodes, {} to and from the host\n",
                      to_text(whole(step.sent[1])), to_text(whole(step.sent[2])), to_text(whole(step.sent[0])));
  text += fmt::format("memory of a rank: {}\n", memory_verdict(prediction, machine));
  return text + grade_note(prediction, machine) + "\n";
}

std::string scaling_table(const config::RunConfig& config, const std::vector<int>& ranks, const Machine& machine) {
  TextTable table({"ranks", "mesh", "microbatches", "step", "p10 to p90", "tokens/s", "per rank", "of the first", "MFU",
                   "exposed", "memory"});
  std::string refused;
  double first = 0;
  for (const int count : ranks) {
    try {
      const Prediction p = predict(config, count, machine);
      const double per_rank = p.tokens_per_second() / count;
      if (first == 0) first = per_rank;
      table.add({std::to_string(count),
                 fmt::format("{}{}", p.mesh.pipeline > 1 ? fmt::format("pipeline {}: ", p.mesh.pipeline) : "",
                             p.mesh.short_text()),
                 std::to_string(p.mesh.accumulation), seconds_text(p.expected.seconds),
                 fmt::format("{} to {}", seconds_text(p.fast), seconds_text(p.slow)),
                 to_short_text(p.tokens_per_second()), fmt::format("{:.4g}", per_rank),
                 fmt::format("{:.0f}%", 100 * per_rank / first), fmt::format("{:.1f}%", 100 * p.mfu),
                 fmt::format("{:.1f}%", 100 * p.expected.exposed() / p.expected.seconds), memory_verdict(p, machine)});
    } catch (const ConfigError& error) {
      refused += fmt::format("\n{} ranks: {}", count, error.what());
    }
  }
  return table.str() + refused;
}

std::string explain_time(const PredictedStep& step) {
  // Ops of the same kind with the same terms are one row: layers and microbatches repeat.
  using Key = std::tuple<std::string, std::string>;
  std::map<Key, std::size_t> seen;
  struct Row {
    std::string op;
    std::size_t first;
    int count = 0;
  };
  std::vector<Row> rows;
  for (std::size_t i = 0; i < step.schedule.ops.size(); ++i) {
    if (step.costs[i].seconds == 0) continue;
    const std::string text = schedule::print(step.schedule.ops[i], *step.model);
    std::string terms;
    for (const Term& term : step.terms[i]) terms += term.name + term.formula;
    const auto [found, fresh] = seen.emplace(Key{text.substr(0, text.find(' ')), terms}, rows.size());
    if (fresh) rows.push_back({.op = text, .first = i});
    ++rows[found->second].count;
  }
  TextTable table({"op, and its terms with their formulas", "times", "each"});
  for (const Row& row : rows) {
    table.add({row.op, std::to_string(row.count), seconds_text(step.costs[row.first].seconds)});
    for (const Term& term : step.terms[row.first])
      table.add({fmt::format("  {}: {}", term.name, term.formula), "", seconds_text(term.seconds)});
  }
  const std::string note =
      step.schedule.microbatches > 1 ? fmt::format(" ({} microbatches)", step.schedule.microbatches) : "";
  return fmt::format("{}\nsimulated step{}: {}\n", table.str(), note, seconds_text(step.timeline.seconds));
}

}  // namespace trireme::planner
