// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/metrics.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "trireme/base/error.hpp"
#include "trireme/model/model.hpp"

namespace trireme::train {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Json memory_json(const StepRow& row) {
  Json out;
  for (const device::Space space : {device::Space::device, device::Space::host}) {
    Json categories;
    for (const device::Category category : device::all_categories())
      categories[std::string(device::to_text(category))] = row.memory[space].peak[category].value;
    categories["total"] = row.memory[space].peak_total.value;
    out[std::string(device::to_text(space))] = std::move(categories);
  }
  out["rss"] = row.rss.peak.value;
  return out;
}

template <class Member>
Json traffic_json(const comm::TrafficTable& table, Member member) {
  Json out = Json::object();
  for (const auto& [group, operations] : table)
    for (const auto& [operation, traffic] : operations) out[group][operation] = member(traffic);
  return out;
}

}  // namespace

std::string to_json(const StepRow& row) {
  Json out;
  out["step"] = row.step;
  out["time"] = unix_seconds();
  out["loss"] = number(row.loss);
  out["grad_norm"] = number(row.grad_norm);
  out["lr"] = row.lr;
  out["tokens"] = row.tokens;
  out["target_tokens"] = row.target_tokens;
  out["step_seconds"] = row.step_seconds;
  out["data_seconds"] = row.data_seconds;
  out["exposed_comm_seconds"] = row.exposed_comm_seconds;
  out["tokens_per_second"] = row.tokens_per_second;
  out["tokens_per_second_per_rank"] = row.tokens_per_second_per_rank;
  out["mfu"] = row.mfu ? number(*row.mfu) : Json(nullptr);
  out["flop_rule"] = model::flop_rule();
  out["restart_count"] = row.restart_count;
  out["skipped"] = row.skipped;
  out["skipped_steps"] = row.skipped_steps;
  out["memory_peak_bytes"] = memory_json(row);
  out["comm_bytes"] = traffic_json(row.traffic, [](const comm::Traffic& t) { return t.bytes.value; });
  out["comm_calls"] = traffic_json(row.traffic, [](const comm::Traffic& t) { return t.calls; });
  return out.dump();
}

std::string to_json(const EvalRow& row) {
  Json out;
  out["step"] = row.step;
  out["time"] = unix_seconds();
  out["eval_loss"] = number(row.eval_loss);
  out["eval_tokens"] = row.eval_tokens;
  out["eval_seconds"] = row.eval_seconds;
  return out.dump();
}

MetricsFile::MetricsFile(const std::string& path) : path_(path), file_(path, std::ios::trunc) {
  if (!file_)
    throw WriteError(fmt::format("{}: cannot be created. Is run.output a directory that you may write to?", path));
}

void MetricsFile::append(const std::string& json) {
  file_ << json << '\n' << std::flush;
  if (!file_)
    throw WriteError(fmt::format("{}: a line could not be written. Is the disk full or the quota used up?", path_));
}

}  // namespace trireme::train
