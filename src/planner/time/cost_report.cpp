// SPDX-License-Identifier: Apache-2.0
// Predictions as text.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "trireme/base/error.hpp"
#include "trireme/base/text.hpp"
#include "trireme/base/text_table.hpp"
#include "trireme/planner/time/fit.hpp"
#include "trireme/planner/time/predict.hpp"
#include "trireme/schedule/text.hpp"

namespace trireme::planner {
namespace {

using schedule::Lane;

/// Three significant digits, or all before the point.
std::string number_text(double value) {
  return value >= 99.95 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

std::string seconds_text(double seconds) {
  if (seconds >= 59.95) return duration_text(seconds);
  if (seconds >= 1) return number_text(seconds) + " s";
  if (seconds >= 1e-3) return number_text(seconds * 1e3) + " ms";
  return number_text(seconds * 1e6) + " us";
}

std::string count_text(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

/// "8 nodes of 8 ranks", "1 node".
std::string nodes_text(int ranks, const Machine& machine) {
  const auto node = static_cast<int>(machine.gpus_per_node);
  if (ranks <= node) return "1 node";
  return fmt::format("{} of {}", count_text((ranks + node - 1) / node, "node"), count_text(node, "rank"));
}

/// "17 GiB of 67.1 GiB".
std::string of_limit(Bytes bytes, std::optional<Bytes> limit, bool fits) {
  return fmt::format("{} of {}{}", to_text(bytes), limit ? to_text(*limit) : "an unknown amount",
                     fits ? "" : " (TOO LARGE)");
}

Bytes whole(double bytes) { return {static_cast<std::int64_t>(bytes)}; }

/// Marks predictions of tensor parallelism by machine files that were not fitted to such runs.
std::string_view calibration_note(const Prediction& prediction, const Machine& machine) {
  const bool known = machine.grade == Grade::measured || (machine.grade == Grade::fitted && machine.measured_nodes > 1);
  return known || prediction.mesh.tensor == 1 ? "" : " (uncalibrated)";
}

std::string grade_note(const Prediction& prediction, const Machine& machine) {
  std::string text = fmt::format("calculated from {} ({}): {}", machine.name, machine.about,
                                 machine.grade == Grade::measured  ? "measured"
                                 : machine.grade == Grade::fitted  ? "fitted to published runs of another trainer, "
                                                                     "Trireme's own kernels may differ by 15%"
                                 : machine.grade == Grade::nominal ? "nominal numbers, expect 15%"
                                                                   : "data sheets, expect 30%");
  if (machine.grade == Grade::data_sheet) text += "\nwarning: no run on such GPUs has been compared with this file";
  if (const double ranks = std::min<double>(prediction.ranks, machine.gpus_per_node);
      machine.cores > 0 && ranks > machine.cores)
    text += fmt::format("\nwarning: {} share {}: they compute at {:.0f}% of the rate of a rank with its own core",
                        count_text(static_cast<std::int64_t>(ranks), "rank"),
                        count_text(static_cast<std::int64_t>(machine.cores), "core"), 100 * machine.cores / ranks);
  if (machine.gpus.empty() && machine.grade != Grade::measured)
    text += "\nThis is a guess until `trireme doctor --measure` has written a machine file of these ranks.";
  const double nodes = prediction.ranks / machine.gpus_per_node;
  if (nodes > 4 * machine.measured_nodes)
    text += fmt::format(
        "\nwarning: {:.0f} nodes planned, links known for {:.0f}: expect 20% until a larger job was measured", nodes,
        machine.measured_nodes);
  if (prediction.mesh.pipeline > 1)
    text += "\nwarning: a pipeline's time is simulated, but has not been compared with measured runs of Trireme";
  if (!calibration_note(prediction, machine).empty())
    text +=
        "\nuncalibrated: no run with tensor parallelism on these GPUs is known; other trainers' differed by 38% in "
        "time and 45% in memory";
  if (prediction.mesh.tensor > machine.gpus_per_node)
    text += "\nwarning: tensor parallelism across nodes is not validated";
  return text;
}

}  // namespace

std::string verdict_text(const config::RunConfig& config, const Prediction& p, const Machine& machine) {
  const Fit fit = fit_of(config, p.memory, p.mesh, machine);
  const NodeMemory host = host_memory_of_node(p.memory, p.mesh, machine);
  const model::Model model = model::build(config.model);
  std::string text = fmt::format(
      "{}: {} of {} parameters on {} of {} ({}; {}{}), {} tokens/s{}, MFU {:.1f}%, {} a rank, host memory {} a node\n",
      fit.both() ? "fits" : "DOES NOT FIT", model.architecture, to_short_text(static_cast<double>(model.elements())),
      count_text(p.ranks, "rank"), machine.name, nodes_text(p.ranks, machine),
      p.mesh.pipeline > 1 ? fmt::format("pipeline {} x ", p.mesh.pipeline) : "", p.mesh.short_text(),
      to_short_text(p.tokens_per_second()), calibration_note(p, machine), 100 * p.mfu,
      of_limit(p.memory.total(), memory_limit(config, machine), fit.device),
      of_limit(host.bytes, host_memory_limit(machine), fit.host));
  if (!fit.host && host.bytes - host.copies <= *host_memory_limit(machine))
    text += fmt::format("  checkpoint.async = false saves the copies that checkpoints are written from: {} a node\n",
                        to_text(host.copies));
  return text;
}

std::string to_text(const Prediction& prediction, const Machine& machine) {
  const StepTime& step = prediction.expected;
  TextTable table(
      {prediction.mesh.pipeline > 1 ? "a step of the pipeline rank that computes longest takes" : "a step takes", "",
       "of it"});
  const auto add = [&](const std::string& name, double seconds) {
    if (seconds > 0) table.add({name, seconds_text(seconds), fmt::format("{:.1f}%", 100 * seconds / step.seconds)});
  };
  add("compute", step.compute);
  add("compute slowed by concurrent communication", step.contention);
  for (const Lane lane : schedule::all_lanes)
    if (lane != Lane::compute)
      add(fmt::format("waits for the {} lane", schedule::to_text(lane)), step.waits[static_cast<std::size_t>(lane)]);
  add("not modelled (step_ms)", step.fixed);
  add("total", step.seconds);
  std::string text = table.str();
  text += fmt::format(
      "\nstep time {} ({} to {}, p10 to p90), tokens/s {} ({} a rank){}, MFU {:.1f}% of {} TFLOP/s\n",
      seconds_text(step.seconds), seconds_text(prediction.fast), seconds_text(prediction.slow),
      to_short_text(prediction.tokens_per_second()), to_short_text(prediction.tokens_per_second() / prediction.ranks),
      calibration_note(prediction, machine), 100 * prediction.mfu, number_text(machine.peak_flops / 1e12));
  text += fmt::format("  FLOPs: {}\n", model::flop_rule());
  text += fmt::format("sent by a rank and step: {} inside nodes, {} between nodes, {} to and from the host\n",
                      to_text(whole(step.sent[1])), to_text(whole(step.sent[2])), to_text(whole(step.sent[0])));
  text += fmt::format("memory of a rank: {} of {}\n", to_text(prediction.memory.total()), to_text(machine.memory));
  text += host_memory_text(prediction.memory, prediction.mesh, machine);
  return text + grade_note(prediction, machine) + "\n";
}

std::string owners_text(const config::RunConfig& config, const Prediction& prediction, const Machine& machine) {
  const optimizer::OptimizerPlan plan(config);
  if (!plan.matrices() || prediction.mesh.pipeline > 1) return "";
  const model::Model model = model::build(config.model, tensor_part(config, prediction.mesh, 0));
  const shard::Layout layout(model, prediction.mesh.shards());
  const optimizer::OwnerPlan owners(model, layout, *plan.matrices());
  double seconds = 0;
  std::int64_t elements = 0;
  std::size_t matrices = 0;
  for (const optimizer::MatrixWindow& window : owners.windows()) {
    seconds += std::ranges::max(newton_schulz_seconds(machine, window.matrices, owners.ranks(), owners.type()));
    matrices += window.matrices.size();
    for (const optimizer::Matrix& matrix : window.matrices) elements += matrix.elements();
  }
  const std::vector<double> flops = owners.flops();
  const double most = std::ranges::max(flops), all = std::accumulate(flops.begin(), flops.end(), 0.0);
  const std::int64_t sent = elements * size_of(owners.type()) / owners.ranks() * (owners.ranks() - 1) / owners.ranks();
  return fmt::format(
      "Muon: {} of {} owner{} in {}, {} TFLOP a step, the most of an owner {} (mean {}): {}, {:.1f}% of a step; {} of "
      "{} to owners and back a rank{}\n",
      count_text(static_cast<std::int64_t>(matrices), "matri" + std::string(matrices == 1 ? "x" : "ce")),
      owners.ranks(), owners.ranks() == 1 ? "" : "s",
      count_text(static_cast<std::int64_t>(owners.windows().size()), "window"), number_text(all / 1e12),
      number_text(most / 1e12), number_text(all / 1e12 / owners.ranks()), seconds_text(seconds),
      100 * seconds / prediction.expected.seconds, to_text(Bytes{sent}), owners.type() == DType::bf16 ? "bf16" : "fp32",
      machine.gpus.empty() ? "" : "; runs on GPUs refuse Muon so far");
}

std::string host_memory_text(const Memory& memory, const config::Resolved& mesh, const Machine& machine) {
  const NodeMemory host = host_memory_of_node(memory, mesh, machine);
  return fmt::format(
      "host memory of a node: {} of {} ({}{}{})\n", to_text(host.bytes),
      machine.node_memory.value > 0 ? to_text(machine.node_memory) : "an unknown amount",
      count_text(host.ranks, "rank"),
      host.copies.value > 0 ? fmt::format("; {} are copies for checkpoint.async", to_text(host.copies)) : "",
      machine.node_memory.value > 0 ? "" : "; the machine file has no host.node_memory");
}

ScalingTable scaling_table(const config::RunConfig& given, const std::vector<int>& ranks, const Machine& machine) {
  struct Row {
    config::RunConfig config;
    Prediction prediction;
  };
  std::vector<Row> rows;
  std::string refused;
  for (const int count : ranks) {
    try {
      config::RunConfig config = given;
      const config::Resolved mesh = config::resolve(config, count);
      const model::Model model = model::build(config.model, tensor_part(config, mesh, 0));
      config.sync = choose_sync(config, model, mesh, step_seconds_on(machine, count)).sync;
      Prediction prediction = predict(config, count, machine);
      rows.push_back({.config = std::move(config), .prediction = std::move(prediction)});
    } catch (const ConfigError& error) {
      refused += fmt::format("\n{}: {}", count_text(count, "rank"), error.what());
    }
  }
  if (rows.empty()) return {.rows = 0, .text = refused.empty() ? "" : refused.substr(1)};
  const Prediction& fewest =
      std::ranges::min_element(rows, {}, [](const Row& row) { return row.prediction.ranks; })->prediction;
  const double first = fewest.tokens_per_second() / fewest.ranks;
  TextTable table({"ranks", "mesh", "nodes", "microbatches", "step", "p10 to p90", "tokens/s", "a rank", "scaling",
                   "MFU", "exposed", "memory a rank", "host memory a node", ""});
  for (const auto& [config, p] : rows) {
    const double per_rank = p.tokens_per_second() / p.ranks;
    const Fit fit = fit_of(config, p.memory, p.mesh, machine);
    table.add({std::to_string(p.ranks),
               fmt::format("{}{}", p.mesh.pipeline > 1 ? fmt::format("pipeline {}: ", p.mesh.pipeline) : "",
                           p.mesh.short_text()),
               nodes_text(p.ranks, machine), std::to_string(p.mesh.accumulation), seconds_text(p.expected.seconds),
               fmt::format("{} to {}", seconds_text(p.fast), seconds_text(p.slow)),
               to_short_text(p.tokens_per_second()) + std::string(calibration_note(p, machine)),
               to_short_text(per_rank), fmt::format("{:.0f}%", 100 * per_rank / first),
               fmt::format("{:.1f}%", 100 * p.mfu),
               fmt::format("{:.1f}%", 100 * p.expected.exposed() / p.expected.seconds), to_text(p.memory.total()),
               to_text(host_memory_of_node(p.memory, p.mesh, machine).bytes),
               fit.both()   ? "fits"
               : fit.device ? "HOST MEMORY DOES NOT FIT"
                            : "DOES NOT FIT"});
  }
  const std::optional<Bytes> host = host_memory_limit(machine);
  return {
      .rows = static_cast<int>(rows.size()),
      .text = fmt::format(
          "{}fits: at most {} a rank{}; scaling: tokens/s a rank, of those with {}; exposed: part of a step in which "
          "computing waits for collectives\n{}",
          table.str(), to_text(memory_limit(given, machine)),
          host ? fmt::format(" and {} of host memory a node", to_text(*host)) : "", count_text(fewest.ranks, "rank"),
          refused.empty() ? "" : refused.substr(1) + "\n")};
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
