// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "trireme/base/text.hpp"
#include "trireme/base/text_table.hpp"
#include "trireme/config/options.hpp"
#include "trireme/planner/search/search.hpp"

namespace trireme::planner {
namespace {

using config::RunConfig;

std::string sync_text(const config::Sync& sync) {
  const std::int64_t group = sync.reshard_after_forward;
  const std::string kept = group > 1                     ? fmt::format(", reshard to {}", group)
                           : group == 0                  ? ", reshard"
                           : sync.reshard_after_backward ? ", kept to backward"
                                                         : ", kept to the update";
  return std::string(config::to_text(sync.policy)) + kept;
}

std::string savings_text(const config::Memory& memory) {
  std::vector<std::string> parts;
  if (memory.recompute != config::Recompute::none)
    parts.push_back(fmt::format("recompute {}{}", config::to_text(memory.recompute),
                                memory.recompute_every > 1 ? fmt::format("/{}", memory.recompute_every) : ""));
  if (memory.offload != config::Offload::none)
    parts.push_back(fmt::format("offload {}", config::to_text(memory.offload)));
  if (memory.activation_offload) parts.emplace_back("offload activations");
  return parts.empty() ? "keep all" : join(parts, ", ");
}

std::string mesh_text(const RunConfig& config, const config::Resolved& mesh) {
  const std::string pipeline =
      mesh.pipeline > 1 ? fmt::format("{} {}: ", config::to_text(config.pipeline.schedule), mesh.pipeline) : "";
  return pipeline + mesh.short_text() + (mesh.expert > 1 ? fmt::format(", expert {}", mesh.expert) : "");
}

void add_row(TextTable& table, const std::string& name, const Found& found, Fit fit) {
  const Prediction& p = found.prediction;
  const auto with_verdict = [](Bytes bytes, bool fits) { return to_text(bytes) + (fits ? "" : " DOES NOT FIT"); };
  const double fast = p.tokens / p.slow, slow = p.tokens / p.fast;
  table.add({name, to_short_text(p.tokens_per_second()),
             fmt::format("{} to {}", to_short_text(fast), to_short_text(slow)), fmt::format("{:.1f}%", 100 * p.mfu),
             with_verdict(p.memory.total(), fit.device), with_verdict(found.host.bytes, fit.host),
             mesh_text(found.config, p.mesh), fmt::format("{} x {}", found.config.batch.micro, p.mesh.accumulation),
             sync_text(found.config.sync), savings_text(found.config.memory), found.bound_by});
}

std::string host_limit_text(const SearchResult& result) {
  return result.host_limit ? to_text(*result.host_limit) : "an unknown amount";
}

/// The keys of `b` that differ from `a`, as lines of a run file or of --set.
std::string changed_keys(const RunConfig& a, const RunConfig& b) {
  std::string text;
  for (const config::Option& option : config::options()) {
    const config::Printed now = option.print(b);
    if (now && now != option.print(a)) text += fmt::format("  {} = {}\n", option.name(), *now);
  }
  return text;
}

}  // namespace

std::string nothing_fits_text(const SearchResult& result) {
  const Prediction& given = result.given.prediction;
  if (result.candidates == 0)
    return fmt::format(
        "No candidate: batch.global = {} cannot be divided over the data-parallel ranks of any mesh of {} ranks; make "
        "it a multiple of {}, or take fewer ranks.{}",
        result.given.config.batch.global, given.ranks, given.mesh.shards() * given.mesh.replicate,
        result.given_fit.both() ? " The run file itself fits." : "");
  if (result.refused == result.candidates)
    return fmt::format(
        "No candidate: all {} are ruled out by the model or by other keys of the run file, such as device.cuda_graphs.",
        result.candidates);
  return fmt::format(
      "Nothing fits: {} candidates need more than {} of a rank's memory, {} more than {} of a node's host memory; take "
      "more ranks, shorter sequences (data.seq_len) or a smaller model.",
      result.too_large, to_text(result.limit), result.too_large_for_host, host_limit_text(result));
}

std::string to_text(const SearchResult& result) {
  std::string text = fmt::format(
      "{} candidates: {} simulated, {} need more than {} a rank, {} more than {} of host memory a node, {} skipped as "
      "the same with less recompute or offload fits, {} ruled out by the model or other keys\n\n",
      result.candidates, result.simulated, result.too_large, to_text(result.limit), result.too_large_for_host,
      host_limit_text(result), result.outdone, result.refused);
  TextTable table({"", "tokens/s", "p10 to p90", "MFU", "memory a rank", "host memory a node",
                   "replicate x shard x tensor", "micro x accumulation", "sync", "memory settings", "bound by"});
  for (std::size_t i = 0; i < result.best.size(); ++i)
    add_row(table, std::to_string(i + 1), result.best[i], {.device = true, .host = true});
  add_row(table, "run file", result.given, result.given_fit);
  text += table.str();
  if (result.best.empty()) return text + "\n" + nothing_fits_text(result) + "\n";
  const std::string keys = changed_keys(result.given.config, result.best.front().config);
  const double gain = result.best.front().prediction.tokens_per_second() / result.given.prediction.tokens_per_second();
  if (keys.empty()) return text + "\nThe run file is the best of them.\n";
  return text + fmt::format("\nThe first is {:.2f} times as fast as the run file, with\n{}", gain, keys) +
         "Time the first three for some steps each: predictions of near equals may change places.\n";
}

}  // namespace trireme::planner
