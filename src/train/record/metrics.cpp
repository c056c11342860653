// SPDX-License-Identifier: Apache-2.0
#include "train/record/metrics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/base/unix_time.hpp"
#include "trireme/model/model.hpp"

namespace trireme::train {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

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

/// The op in which each category was highest; those that did not grow in the step are left out.
Json peak_ops_json(const StepRow& row) {
  Json out;
  for (const device::Space space : {device::Space::device, device::Space::host}) {
    const device::PeakOps& ops = row.memory[space].peak_ops;
    Json words = Json::object();
    const auto add = [&](std::string_view name, int op) {
      if (op != device::no_op && row.op_text) words[std::string(name)] = row.op_text(op);
    };
    for (const device::Category category : device::all_categories()) add(device::to_text(category), ops[category]);
    add("total", ops.total);
    out[std::string(device::to_text(space))] = std::move(words);
  }
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

std::optional<ExpertLoad> expert_load(const std::vector<std::vector<std::int64_t>>& tokens) {
  std::optional<ExpertLoad> worst;
  for (std::size_t layer = 0; layer < tokens.size(); ++layer) {
    const std::vector<std::int64_t>& of = tokens[layer];
    if (of.empty()) continue;
    const auto all = static_cast<double>(std::accumulate(of.begin(), of.end(), std::int64_t{0}));
    const auto most = static_cast<double>(*std::max_element(of.begin(), of.end()));
    const double max = all > 0 ? most * static_cast<double>(of.size()) / all : 0;
    if (!worst || max > worst->max) worst = {.max = max, .layer = static_cast<std::int64_t>(layer), .tokens = of};
  }
  return worst;
}

std::string to_json(const StepRow& row) {
  LastWritten none;
  return to_json(row, none);
}

std::string to_json(const StepRow& row, LastWritten& last) {
  Json out;
  out["step"] = row.step;
  out["time"] = unix_seconds();
  out["loss"] = number(row.loss);
  out["grad_norm"] = number(row.grad_norm);
  if (row.z_loss) out["z_loss"] = number(*row.z_loss);
  if (row.balance_loss) out["balance_loss"] = number(*row.balance_loss);
  if (row.router_z_loss) out["router_z_loss"] = number(*row.router_z_loss);
  if (row.expert_load) {
    out["expert_load_max"] = number(row.expert_load->max);
    out["expert_load_layer"] = row.expert_load->layer;
    out["expert_tokens"] = row.expert_load->tokens;
  }
  out["lr"] = row.lr;
  out["epoch"] = row.epoch;
  out["tokens"] = row.tokens;
  out["target_tokens"] = row.target_tokens;
  out["step_seconds"] = row.step_seconds;
  out["data_seconds"] = row.data_seconds;
  out["exposed_comm_seconds"] = row.exposed_comm_seconds;
  if (row.pipeline_wait_seconds) out["pipeline_wait_seconds"] = *row.pipeline_wait_seconds;
  if (row.pipeline_bubble) out["pipeline_bubble"] = *row.pipeline_bubble;
  out["tokens_per_second"] = row.tokens_per_second;
  out["tokens_per_second_per_rank"] = row.tokens_per_second_per_rank;
  out["mfu"] = row.mfu ? number(*row.mfu) : Json(nullptr);
  out["flop_rule"] = model::flop_rule();
  out["gemm"] = row.gemm;
  out["restart_count"] = row.restart_count;
  out["skipped"] = row.skipped;
  out["skipped_steps"] = row.skipped_steps;
  out["memory_peak_bytes"] = memory_json(row);
  out["memory_peak_op"] = peak_ops_json(row);
  out["comm_bytes"] = traffic_json(row.traffic, [](const comm::Traffic& t) { return t.bytes.value; });
  out["comm_calls"] = traffic_json(row.traffic, [](const comm::Traffic& t) { return t.calls; });
  for (const char* key : {"flop_rule", "gemm", "memory_peak_op", "comm_bytes", "comm_calls"}) {
    const std::string text = out[key].dump();
    if (std::exchange(last[key], text) == text) out.erase(key);
  }
  return out.dump();
}

std::string to_json(const EvalRow& row) {
  Json out;
  out["step"] = row.step;
  out["time"] = unix_seconds();
  out["eval_loss"] = number(row.eval_loss);
  for (const auto& [set, loss] : row.eval_losses) out["eval_losses"][set] = number(loss);
  out["eval_tokens"] = row.eval_tokens;
  out["eval_seconds"] = row.eval_seconds;
  return out.dump();
}

KeptLines keep_lines(const std::string& path, std::int64_t keep_steps) {
  KeptLines kept;
  refuse_fifo(path);
  std::ifstream file(path);
  if (!file) return kept;  // there is none
  std::string text;
  std::uintmax_t bytes = 0;
  bool begins_with_them = true;
  for (std::string line; std::getline(file, line); bytes += line.size() + 1) {
    // A kill may have left half a line.
    const Json row = Json::parse(line, nullptr, false);
    const bool whole = row.is_object() && row.contains("step") && row["step"].is_number_integer();
    if (!whole || row["step"] > keep_steps) continue;
    begins_with_them = begins_with_them && bytes == text.size() && !file.eof();  // the end of the line is there, too
    ++kept.lines;
    if (row.contains("eval_loss")) kept.evaluated_step = row["step"];
    text += line + "\n";
  }
  std::error_code error;
  if (begins_with_them) {
    std::filesystem::resize_file(path, text.size(), error);
  } else {  // by another name first, so that a kill loses nothing
    io::write_text(path + ".partial", text);
    std::filesystem::rename(path + ".partial", path, error);
  }
  if (error) throw WriteError(fmt::format("{}: cannot be replaced: {}; check its permissions", path, error.message()));
  return kept;
}

MetricsFile::MetricsFile(const std::string& path, std::int64_t keep_steps)
    : kept_(keep_steps > 0 ? keep_lines(path, keep_steps) : KeptLines{}),
      file_(path, keep_steps > 0 ? LogFile::Begin::append : LogFile::Begin::empty, "lines") {}

}  // namespace trireme::train
