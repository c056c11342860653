// SPDX-License-Identifier: Apache-2.0
#include "train/record/curves.hpp"

#include <fmt/format.h>

#include <cmath>

namespace trireme::train {
namespace {

double number(std::int64_t value) { return static_cast<double>(value); }
double number(Bytes bytes) { return number(bytes.value); }

void add_memory(std::vector<Scalar>& curves, const StepRow& row) {
  for (const device::Space space : {device::Space::device, device::Space::host}) {
    const device::SpaceUse& use = row.memory[space];
    const auto tag = [&](std::string_view name) { return fmt::format("memory/{}/{}", device::to_text(space), name); };
    for (const device::Category category : device::all_categories())
      if (use.peak[category].value > 0) curves.push_back({tag(device::to_text(category)), number(use.peak[category])});
    curves.push_back({tag("total"), number(use.peak_total)});
  }
  curves.push_back({"memory/rss", number(row.rss.peak)});
}

void add_traffic(std::vector<Scalar>& curves, const comm::TrafficTable& table) {
  for (const auto& [group, operations] : table)
    for (const auto& [operation, traffic] : operations)
      curves.push_back({fmt::format("traffic/{}/{}", group, operation), number(traffic.bytes)});
}

}  // namespace

std::vector<Scalar> curves(const StepRow& row) {
  std::vector<Scalar> curves{{"optim/grad_norm", row.grad_norm},
                             {"optim/lr", row.lr},
                             {"speed/tokens_per_second", row.tokens_per_second},
                             {"speed/tokens_per_second_per_rank", row.tokens_per_second_per_rank},
                             {"time/step_seconds", row.step_seconds},
                             {"time/data_seconds", row.data_seconds},
                             {"time/exposed_comm_seconds", row.exposed_comm_seconds},
                             {"progress/epoch", row.epoch},
                             {"progress/tokens", number(row.tokens)},
                             {"progress/target_tokens", number(row.target_tokens)},
                             {"progress/skipped_steps", number(row.skipped_steps)},
                             {"progress/restart_count", number(row.restart_count)},
                             {"progress/goodput", row.goodput}};
  if (row.packing) curves.push_back({"progress/padding_tokens", number(row.padding_tokens)});
  if (row.counts()) curves.push_back({"loss/train", row.loss});
  if (row.spike_score) curves.push_back({"optim/spike_score", *row.spike_score});
  for (const auto& [block, norm] : row.block_grad_norms) curves.push_back({"optim/block_grad_norms/" + block, norm});
  if (row.counts() && row.z_loss) curves.push_back({"loss/z_loss", *row.z_loss});
  if (row.balance_loss) curves.push_back({"loss/balance", *row.balance_loss});
  if (row.router_z_loss) curves.push_back({"loss/router_z_loss", *row.router_z_loss});
  if (row.expert_load) curves.push_back({"experts/load_max", row.expert_load->max});
  if (row.mfu) curves.push_back({"speed/mfu", *row.mfu});
  if (row.slowest_node_ratio) curves.push_back({"time/slowest_node_ratio", *row.slowest_node_ratio});
  add_memory(curves, row);
  add_traffic(curves, row.traffic);
  return curves;
}

std::vector<Scalar> curves(const EvalRow& row) {
  std::vector<Scalar> curves{{"time/validation_seconds", row.eval_seconds}};
  // A mean over no target is no point. Of the sets alone it shows by a mean over all that is finite.
  if (row.eval_tokens > 0 || !std::isnan(row.eval_loss)) curves.push_back({"loss/validation", row.eval_loss});
  for (const auto& [set, loss] : row.eval_losses)
    if (!std::isnan(loss) || (row.eval_tokens > 0 && std::isnan(row.eval_loss)))
      curves.push_back({"loss/validation/" + set, loss});
  if (row.bits_per_byte) curves.push_back({"bits_per_byte/validation", *row.bits_per_byte});
  for (const auto& [set, bits] : row.bits_per_byte_of_sets) curves.push_back({"bits_per_byte/validation/" + set, bits});
  for (const auto& [set, scores] : row.choices) {
    curves.push_back({"choices/" + set + "/accuracy", scores.accuracy});
    curves.push_back({"choices/" + set + "/accuracy_norm", scores.accuracy_norm});
  }
  return curves;
}

}  // namespace trireme::train
