// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/compare/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "trireme/base/text_table.hpp"
#include "trireme/mesh/groups.hpp"
#include "trireme/planner/pipeline.hpp"
#include "trireme/schedule/passes/build.hpp"
#include "trireme/schedule/text.hpp"

namespace trireme::planner {
namespace {

using Categories = std::map<std::string, double>;

std::string byte_text(double bytes) { return to_text(Bytes{static_cast<std::int64_t>(bytes)}); }
std::string time_text(double seconds) {
  return seconds >= 1 ? fmt::format("{:.3f} s", seconds) : fmt::format("{:.3f} ms", 1e3 * seconds);
}

std::string error_text(double predicted, double measured) {
  if (predicted == measured) return "equal";
  if (measured == 0) return "";
  return fmt::format("{:+.1f}%", 100 * (predicted / measured - 1));
}

double as_double(Bytes bytes) { return static_cast<double>(bytes.value); }

Categories on_device(const Memory& m) {
  return {{"parameters.sharded", as_double(m.parameters_sharded)},
          {"parameters.unsharded", as_double(m.parameters_unsharded)},
          {"parameters.resharded", as_double(m.parameters_resharded)},
          {"gradients.sharded", as_double(m.gradients_sharded)},
          {"gradients.unsharded", as_double(m.gradients_unsharded)},
          {"optimizer", as_double(m.optimizer)},
          {"activations", as_double(m.activations)},
          {"workspace", as_double(m.workspace + m.product_workspace)}};
}

Categories on_host(const Memory::Host& m) {
  return {{"parameters.sharded", as_double(m.parameters_sharded)},
          {"gradients.sharded", as_double(m.gradients_sharded)},
          {"optimizer", as_double(m.optimizer)},
          {"activations", as_double(m.activations)},
          {"other", as_double(m.other)}};
}

double at(const Categories& categories, const std::string& name) {
  const auto found = categories.find(name);
  return found == categories.end() ? 0 : found->second;
}

constexpr const char* even_experts = "depends on the data: predicted for even experts";

/// Adds the categories that the planner counts; the other measured ones are summed in one line below. experts:
/// activations depend on tokens that other ranks send.
void add_memory(TextTable& table, const std::string& space, const Categories& predicted, const Categories& measured,
                bool workspace, bool experts) {
  double sum = 0, measured_sum = 0, rest = 0;
  for (const auto& [name, bytes] : measured) {
    const bool counted = predicted.contains(name) && (name != "workspace" || workspace);
    if (name == "total") continue;
    if (!counted) rest += bytes;
    if (!counted || (bytes == 0 && at(predicted, name) == 0)) continue;
    std::string error = error_text(at(predicted, name), bytes);
    if (experts && name == "activations" && error != "equal") error += fmt::format(", {}", even_experts);
    table.add({space + " " + name, byte_text(at(predicted, name)), byte_text(bytes), error});
    sum += at(predicted, name);
    measured_sum += bytes;
  }
  if (measured_sum > 0) {
    const std::string error = error_text(sum, measured_sum);
    table.add({space + " sum of these peaks", byte_text(sum), byte_text(measured_sum),
               experts && error != "equal" ? fmt::format("{}, {}", error, even_experts) : error});
  }
  if (rest > 0) table.add({space + " not predicted (workspace, staging, data)", "", byte_text(rest), ""});
}

/// experts: some get tokens of other ranks, whose activations go to the host.
std::string compare_bytes(const Traffic& predicted, const MeasuredRun& run, bool experts) {
  TextTable table({"bytes of rank 0 and step", "predicted", "measured", "error"});
  std::set<std::pair<std::string, std::string>> names;
  for (const auto& [group, operations] : predicted)
    for (const auto& [operation, moved] : operations) names.emplace(group, operation);
  for (const auto& [group, operations] : run.bytes)
    for (const auto& [operation, bytes] : operations)
      if (group != "control") names.emplace(group, operation);
  for (const auto& [group, operation] : names) {
    double ours = 0, theirs = 0;
    if (const auto found = predicted.find(group); found != predicted.end())
      if (const auto moved = found->second.find(operation); moved != found->second.end())
        ours = as_double(moved->second.bytes);
    if (const auto found = run.bytes.find(group); found != run.bytes.end()) theirs = at(found->second, operation);
    if (ours == 0 && theirs == 0) continue;
    const bool of_data = group == mesh::to_text(mesh::Group::expert) ||  // how many tokens each expert gets
                         (experts && group == "host" && ours != theirs);
    table.add({group + " " + operation, fmt::format("{:.0f}", ours), fmt::format("{:.0f}", theirs),
               of_data ? even_experts : error_text(ours, theirs)});
  }
  return table.str();
}

/// Mean seconds of the simulated ops of each kind, including slowdown by concurrent ops.
std::map<std::string, double> mean_seconds(const PredictedStep& step) {
  std::map<std::string, std::pair<double, int>> sums;
  for (std::size_t i = 0; i < step.schedule.ops.size(); ++i) {
    auto& [seconds, count] = sums[kind_of_op(schedule::print(step.schedule.ops[i], *step.model))];
    seconds += step.timeline.ops[i].end - step.timeline.ops[i].begin;
    ++count;
  }
  std::map<std::string, double> means;
  for (const auto& [kind, sum] : sums) means[kind] = sum.first / sum.second;
  return means;
}

std::string compare_ops(const PredictedStep& step, const MeasuredRun& run) {
  const auto means = mean_seconds(step);
  std::vector<std::pair<std::string, MeasuredOps>> ops(run.ops.begin(), run.ops.end());
  std::stable_sort(ops.begin(), ops.end(),
                   [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  TextTable table({"ops of a traced step", "lane", "count", "predicted", "measured", "error"});
  double compute = 0, measured_compute = 0;
  for (const auto& [kind, measured] : ops) {
    const auto mean = means.find(kind);
    if (mean == means.end()) {
      table.add({kind, measured.lane, fmt::format("{:.0f}", measured.count), "", time_text(measured.seconds), ""});
      continue;
    }
    const double predicted = mean->second * measured.count;
    table.add({kind, measured.lane, fmt::format("{:.0f}", measured.count), time_text(predicted),
               time_text(measured.seconds), error_text(predicted, measured.seconds)});
    if (measured.lane != "compute") continue;
    compute += predicted;
    measured_compute += measured.seconds;
  }
  std::string text = "\n" + table.str();
  if (compute > 0 && measured_compute > 0)
    text += fmt::format(
        "compute lane: {} predicted, {} measured: multiply the machine file's rates (products, attention_tflops, "
        "memory_tb_s) by {:.3f}\n",
        time_text(compute), time_text(measured_compute), compute / measured_compute);
  return text;
}

std::string compare_time(const config::RunConfig& config, const MeasuredRun& run, const Machine& machine) {
  const Prediction predicted = predict(config, run.ranks, machine);
  TextTable table({"time of a step", "predicted", "measured", "error"});
  table.add({fmt::format("step, median of {}", run.rows), time_text(predicted.expected.seconds),
             time_text(run.step_seconds), error_text(predicted.expected.seconds, run.step_seconds)});
  table.add(
      {"step, p10 to p90", fmt::format("{} to {}", time_text(predicted.fast), time_text(predicted.slow)), "", ""});
  table.add({predicted.mesh.pipeline > 1 ? "exposed communication (predicted: of the rank that computes longest)"
                                         : "exposed communication",
             time_text(predicted.expected.exposed()), time_text(run.exposed_seconds),
             error_text(predicted.expected.exposed(), run.exposed_seconds)});
  table.add({"waiting for data", "", time_text(run.data_seconds), ""});
  std::string text = fmt::format("\non {} ({})\n{}", machine.name, to_text(machine.grade), table.str());
  if (run.ops.empty()) return text + "no trace-rank0.json: set metrics.trace_steps to compare op by op\n";
  return text + compare_ops(predict_ops(config, run.ranks, machine, {.pipeline_rank = 0}), run);
}

/// Predictions for rank 0, the first rank of a pipeline.
std::pair<Memory, Traffic> of_rank_0(const config::RunConfig& config, const config::Resolved& mesh) {
  if (mesh.pipeline > 1) {
    const PipelinePlan plan = plan_pipeline(config, mesh);
    return {plan.memory.front(), plan.traffic.front()};
  }
  const model::Model model = model::build(config.model, tensor_part(config, mesh, 0));
  const auto step = schedule::build_step(model, mesh.accumulation, schedule::policy_of(config, mesh));
  const shard::Layout layout(model, mesh.shards());
  const ReplayOptions replay_options = replay_options_of(config, mesh);
  return {replay_memory(step, model, layout, replay_options), replay_traffic(step, model, layout, replay_options)};
}

}  // namespace

std::string compare(const config::RunConfig& given, const MeasuredRun& run, const std::optional<Machine>& machine) {
  const config::RunConfig config = computing_on(given, machine && !machine->gpus.empty());
  const config::Resolved mesh = config::resolve(config, run.ranks);
  const auto [memory, traffic] = of_rank_0(config, mesh);
  const auto space = [&](const char* name) {
    const auto found = run.memory.find(name);
    return found == run.memory.end() ? Categories{} : found->second;
  };
  TextTable table({"memory of rank 0", "predicted", "measured", "error"});
  add_memory(table, "device", on_device(memory), space("device"), replay_options_of(config, mesh).on_gpu,
             mesh.expert > 1);
  add_memory(table, "host", on_host(memory.host), space("host"), false, mesh.expert > 1);
  std::string text =
      fmt::format("{} rank{} ({}{}); error: predicted over measured\n\n{}\n{}", run.ranks, run.ranks == 1 ? "" : "s",
                  mesh.pipeline > 1 ? fmt::format("pipeline {} x ", mesh.pipeline) : "", mesh.short_text(),
                  table.str() + host_memory_text(memory, mesh, machine ? *machine : machine_of("", {})),
                  compare_bytes(traffic, run, mesh.expert > 1));
  return text + (machine ? compare_time(config, run, *machine) : "add --machine to compare times\n");
}

}  // namespace trireme::planner
