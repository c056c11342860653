// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/advice.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/base/text.hpp"
#include "trireme/base/text_table.hpp"
#include "trireme/config/load.hpp"
#include "trireme/planner/pipeline.hpp"
#include "trireme/planner/rank_bytes.hpp"
#include "trireme/schedule/passes/build.hpp"

namespace trireme::planner {

std::optional<config::RunConfig> changed(const config::RunConfig& config, const std::vector<std::string>& overrides) {
  config::RunConfig given = config;
  if (config.mesh.tensor == 1) given.mesh.sequence_parallel.reset();  // another mesh has another default
  try {
    return config::set(given, overrides);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

namespace {

/// Requirements of a step.
struct Needs {
  Memory memory;
  Bytes traffic, copies;
  double flops = 0;  ///< in units of one forward of all blocks and microbatches; a backward counts two
};

/// Adds the traffic of one rank's list, and its number of forwards.
void add_list(Needs& needs, const schedule::Schedule& step, const model::Model& model, const Traffic& traffic) {
  for (const auto& [group, operations] : traffic)
    for (const auto& [operation, moved] : operations) (group == "host" ? needs.copies : needs.traffic) += moved.bytes;
  double forward = 0, again = 0;
  const auto cost = [&](Block block) { return static_cast<double>(model::product_elements(model, block)); };
  for (const schedule::Op& op : step.ops) {
    if (const auto* f = std::get_if<schedule::Forward>(&op)) forward += cost(f->block);
    if (const auto* r = std::get_if<schedule::Recompute>(&op)) again += cost(r->block);
  }
  needs.flops = forward > 0 ? 3 + again / forward : 3;
}

Needs needs_of(const config::RunConfig& config, int ranks) {
  const config::Resolved mesh = config::resolve(config, ranks);
  if (config.mesh.pipeline > 1) {
    const PipelinePlan plan = bytes_of_pipeline(config, mesh);
    const auto worst = static_cast<std::size_t>(plan.worst_rank());
    Needs needs{.memory = plan.memory[worst]};
    add_list(needs, plan.steps[worst], plan.parts[worst].model, plan.traffic[worst]);
    return needs;
  }
  const model::Model model = model::build(config.model, tensor_part(config, mesh, 0));
  RankBytes bytes = bytes_of_rank(config, mesh, model, /*verified=*/false);  // one of many
  Needs needs{.memory = std::move(bytes.memory)};
  add_list(needs, bytes.step, model, bytes.traffic);
  return needs;
}

std::optional<Needs> needs_with(const config::RunConfig& config, const std::vector<std::string>& overrides, int ranks) {
  const auto with = changed(config, overrides);
  if (!with) return std::nullopt;
  try {
    return needs_of(*with, ranks);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

/// Half of the microbatch, or one sequence if it is odd.
std::int64_t smaller(std::int64_t micro) { return micro % 2 == 0 ? micro / 2 : 1; }

struct Change {
  std::string line;
  std::string_view note{};  ///< other costs than bytes and flops
};

std::string other_method(const config::RunConfig& config) {
  return config.context.method == config::ContextMethod::heads ? "context.method = \"gather\""
                                                               : "context.method = \"heads\"";
}

std::vector<Change> changes(const config::RunConfig& config) {
  std::vector<Change> all{
      {fmt::format("batch.micro = {}", smaller(config.batch.micro))},
      {"sync.policy = \"immediate\""},
      {"sync.reshard_after_forward = true"},
      {"sync.reshard_after_backward = true"},
      {"sync.prefetch_bytes = 0", "gathers are waited for"},
      {"memory.recompute = \"selective\"", "norms and SwiGLU again"},
      {"memory.recompute = \"block\""},
      {"memory.activation_offload = true"},
      {"memory.offload = \"optimizer\"", "the host's cores update"},
      {"memory.offload = \"parameters\"", "the host's cores update"},
      {"precision.compute = \"bf16\"", "activations are rounded"},
      {"precision.masters = \"split\"", "ties are rounded away from zero"},
      {"precision.moments = \"bf16\"", "moments are rounded stochastically"},
      {"mesh.replicate = 1", "gathers cross the replicas"},
      {fmt::format("mesh.tensor = {}", 2 * config.mesh.tensor), "traffic within each layer"},
      {fmt::format("mesh.context = {}", 2 * config.mesh.context), config.context.method == config::ContextMethod::heads
                                                                      ? "heads are exchanged in each layer"
                                                                      : "keys and values are gathered in each layer"},
      {fmt::format("mesh.pipeline = {}", 2 * config.mesh.pipeline), "ranks wait for each other (--show pipeline)"}};
  if (config.mesh.context > 1) all.push_back({other_method(config)});
  if (config.model.experts > 0)
    all.push_back(
        {fmt::format("mesh.expert = {}", 2 * config.mesh.expert), "tokens are sent to experts in each layer"});
  return all;
}

/// Smallest memory with all settings that divide neither ranks nor layers.
std::optional<Bytes> least(const config::RunConfig& config, int ranks) {
  config::RunConfig all = config;
  for (const auto& [line, note] : changes(config)) {
    constexpr std::string_view divide[] = {"mesh.tensor", "mesh.context", "mesh.pipeline", "mesh.expert"};
    if (std::ranges::any_of(divide, [&](std::string_view axis) { return line.starts_with(axis); })) continue;
    const auto with = changed(all, {line.starts_with("batch.micro") ? "batch.micro = 1" : line});
    const auto before = needs_with(all, {}, ranks);
    const auto after = with ? needs_with(*with, {}, ranks) : std::nullopt;
    if (before && after && after->memory.total() < before->memory.total()) all = *with;
  }
  const auto needs = needs_with(all, {}, ranks);
  return needs ? std::optional(needs->memory.total()) : std::nullopt;
}

std::string percent(double part) { return fmt::format("{:.0f}%", 100 * part); }

std::string cost(const Remedy& remedy) {
  std::vector<std::string> costs;
  if (remedy.more_traffic.value != 0)
    costs.push_back(fmt::format("{} {} traffic", to_text(Bytes{std::abs(remedy.more_traffic.value)}),
                                remedy.more_traffic.value > 0 ? "more" : "less"));
  if (remedy.more_host.value > 0) costs.push_back(fmt::format("{} of host memory", to_text(remedy.more_host)));
  if (remedy.more_copies.value > 0)
    costs.push_back(fmt::format("{} copied to and from the host", to_text(remedy.more_copies)));
  if (remedy.more_flops > 0.005) costs.push_back(percent(remedy.more_flops) + " more compute");
  if (!remedy.note.empty()) costs.push_back(remedy.note);
  return costs.empty() ? "nothing" : join(costs, ", ");
}

std::string diagnosis(const Advice& advice) {
  const Memory& m = advice.memory;
  const auto total = static_cast<double>(m.total().value);
  const double activations = static_cast<double>(m.activations.value) / total;
  std::string text =
      activations > 0.5
          ? fmt::format(
                "Activations are {} of the {} that a rank needs: a smaller microbatch, recompute, offload of "
                "activations, tensor or context parallelism help.",
                percent(activations), to_text(m.total()))
          : fmt::format(
                "Parameters, gradients and optimizer state are {} of the {} that a rank needs: wider sharding and "
                "offload help.",
                percent(1 - activations), to_text(m.total()));
  if (advice.less_traffic)
    text += fmt::format(" {} sends {} less a rank and step.", advice.less_traffic->line,
                        to_text(advice.less_traffic->bytes));
  if (!advice.budget) return text;
  if (m.total() <= *advice.budget) return text + fmt::format(" It fits memory.budget = {}.", to_text(*advice.budget));
  text += fmt::format(" That is {} more than memory.budget = {}.", to_text(m.total() - *advice.budget),
                      to_text(*advice.budget));
  if (advice.least && *advice.least > *advice.budget)
    text += fmt::format(
        " Even one sequence a microbatch with all of the changes that keep the ranks needs {}: take more ranks, divide "
        "every layer with mesh.tensor, the layers with mesh.pipeline, or the sequences with mesh.context.",
        to_text(*advice.least));
  return text;
}

}  // namespace

Advice advise(const config::RunConfig& config, int ranks) {
  const Needs now = needs_of(config, ranks);
  Advice advice{.memory = now.memory, .budget = config.memory.budget};
  const auto consider = [&](const Change& change, const std::optional<Needs>& with) {
    if (!with) return;
    const Bytes saves = now.memory.total() - with->memory.total();
    if (saves.value * 100 < now.memory.total().value) return;
    advice.remedies.push_back({.line = change.line,
                               .saves = saves,
                               .more_traffic = with->traffic - now.traffic,
                               .more_copies = with->copies - now.copies,
                               .more_host = with->memory.host.total() - now.memory.host.total(),
                               .more_flops = (with->flops - now.flops) / now.flops,
                               .note = std::string(change.note),
                               .fits = advice.budget && with->memory.total() <= *advice.budget});
  };
  for (const Change& change : changes(config)) consider(change, needs_with(config, {change.line}, ranks));
  if (config.mesh.context > 1)
    if (const auto with = needs_with(config, {other_method(config)}, ranks); with && with->traffic < now.traffic)
      advice.less_traffic = {.line = other_method(config), .bytes = now.traffic - with->traffic};
  if (config.mesh.shard < 0)
    consider({fmt::format("{} ranks", 2 * ranks), "twice the machine"}, needs_with(config, {}, 2 * ranks));
  std::stable_sort(advice.remedies.begin(), advice.remedies.end(),
                   [](const Remedy& a, const Remedy& b) { return a.saves > b.saves; });
  if (advice.budget && now.memory.total() > *advice.budget) advice.least = least(config, ranks);
  return advice;
}

std::string to_text(const Advice& advice) {
  if (advice.remedies.empty()) return diagnosis(advice) + "\n";
  TextTable table({"to need less, one of", "saves a rank", "costs a rank and step", advice.budget ? "" : " "});
  for (const Remedy& remedy : advice.remedies)
    table.add({remedy.line, to_text(remedy.saves), cost(remedy), remedy.fits ? "fits" : ""});
  return diagnosis(advice) + "\n\n" + table.str();
}

}  // namespace trireme::planner
