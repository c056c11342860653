// SPDX-License-Identifier: Apache-2.0
#include "train/record/metrics.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <utility>

#include "base/io/json.hpp"
#include "trireme/base/build_info.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/base/io/output.hpp"
#include "trireme/base/io/regular_file.hpp"
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

/// Counts, and shares of positions and documents.
Json packing_json(const data::PackingCounts& counts) {
  return {{"documents", counts.documents},
          {"rows", counts.rows},
          {"padding", counts.padding_share()},
          {"cut", counts.cut_share()},
          {"cut_concatenated", counts.concatenated_cut_share()}};
}

std::string to_json(const StepRow& row, LastWritten& last) {
  Json out;
  out["step"] = row.step;
  out["time"] = unix_seconds();
  out["loss"] = number(row.loss);
  out["grad_norm"] = number(row.grad_norm);
  out["spike_score"] = row.spike_score ? number(*row.spike_score) : Json(nullptr);
  for (const auto& [block, norm] : row.block_grad_norms) out["block_grad_norms"][block] = number(norm);
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
  if (row.packing) {
    out["padding_tokens"] = row.padding_tokens;
    out["packing"] = packing_json(*row.packing);
  }
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
  out["device"] = row.device;
  out["version"] = fmt::format("{} ({})", build_info().version, build_info().git_hash);
  out["restart_count"] = row.restart_count;
  out["goodput"] = row.goodput;
  if (row.slowest_node_ratio) {
    out["slowest_node_ratio"] = *row.slowest_node_ratio;
    out["stragglers"] = row.stragglers.empty() ? Json(nullptr) : Json(row.stragglers);
  }
  out["skipped"] = row.skipped;
  out["skipped_steps"] = row.skipped_steps;
  out["memory_peak_bytes"] = memory_json(row);
  out["memory_peak_op"] = peak_ops_json(row);
  out["comm_bytes"] = traffic_json(row.traffic, [](const comm::Traffic& t) { return t.bytes.value; });
  out["comm_calls"] = traffic_json(row.traffic, [](const comm::Traffic& t) { return t.calls; });
  for (const char* key :
       {"flop_rule", "gemm", "device", "version", "packing", "memory_peak_op", "comm_bytes", "comm_calls"}) {
    if (!out.contains(key)) continue;
    const std::string text = out[key].dump();
    if (std::exchange(last[key], text) == text) out.erase(key);
  }
  return out.dump();
}

double ChoiceScores::standard_error(double accuracy) const {
  return questions > 1 ? std::sqrt(accuracy * (1 - accuracy) / static_cast<double>(questions - 1)) : 0;
}

std::string to_json(const EvalRow& row) {
  Json out;
  out["step"] = row.step;
  out["time"] = unix_seconds();
  out["eval_loss"] = number(row.eval_loss);
  for (const auto& [set, loss] : row.eval_losses) out["eval_losses"][set] = number(loss);
  if (row.bits_per_byte) out["eval_bits_per_byte"] = number(*row.bits_per_byte);
  for (const auto& [set, bits] : row.bits_per_byte_of_sets) out["eval_bits_per_byte_of_sets"][set] = number(bits);
  for (const auto& [set, scores] : row.choices)
    out["eval_choices"][set] = {{"accuracy", scores.accuracy},
                                {"accuracy_stderr", scores.standard_error(scores.accuracy)},
                                {"accuracy_norm", scores.accuracy_norm},
                                {"accuracy_norm_stderr", scores.standard_error(scores.accuracy_norm)},
                                {"questions", scores.questions}};
  out["eval_tokens"] = row.eval_tokens;
  out["eval_seconds"] = row.eval_seconds;
  return out.dump();
}

std::string with_evaluation_keys(std::string row, const std::vector<std::string>& sets, bool choices) {
  Json keys{
      {"eval_loss", nullptr}, {"eval_tokens", nullptr}, {"eval_seconds", nullptr}, {"eval_bits_per_byte", nullptr}};
  if (choices) keys["eval_choices"] = nullptr;
  for (const std::string& set : sets) keys["eval_losses"][set] = nullptr;
  row.back() = ',';
  return row + keys.dump().substr(1);
}

namespace {

constexpr std::size_t longest_line = std::size_t{16} << 20;

/// Turns errors of reading into WriteError: a file that is cut back must never end at a read error.
template <class Work>
void reading(Work&& work) {
  try {
    work();
  } catch (const WriteError&) {
    throw;
  } catch (const Error& error) {
    throw WriteError(
        fmt::format("{} (it is cut back to the restored step, and stays as it is until then)", error.what()));
  }
}

/// Calls `visit` with every line, without its end, and whether it has one.
template <class Visit>
void for_each_line(const io::File& file, Visit&& visit) {
  std::string piece, line;
  std::int64_t number = 1;
  for (std::int64_t at = 0; at < file.size(); at += static_cast<std::int64_t>(piece.size())) {
    piece.resize(static_cast<std::size_t>(std::min<std::int64_t>(file.size() - at, std::int64_t{1} << 20)));
    file.read_at(at, std::as_writable_bytes(std::span(piece)));
    for (std::size_t begin = 0; begin < piece.size();) {
      const std::size_t end = piece.find('\n', begin);
      const bool ended = end != std::string::npos;
      line.append(piece, begin, ended ? end - begin : end);
      if (line.size() > longest_line)
        throw WriteError(fmt::format("{}: line {} is longer than 16 MiB, so no run wrote it; move the file away",
                                     file.path(), number));
      if (!ended) break;
      visit(line, true);
      line.clear();
      begin = end + 1;
      ++number;
    }
  }
  if (!line.empty()) visit(line, false);
}

/// Bytes of a file that stay.
struct Kept {
  std::int64_t begin = 0, end = 0;
  bool ended = true;  ///< the last byte ends a line
};

void copy(const io::File& from, const std::vector<Kept>& parts, io::File& to) {
  std::string piece;
  for (const Kept& part : parts) {
    for (std::int64_t at = part.begin; at < part.end; at += static_cast<std::int64_t>(piece.size())) {
      piece.resize(static_cast<std::size_t>(std::min<std::int64_t>(part.end - at, std::int64_t{1} << 20)));
      from.read_at(at, std::as_writable_bytes(std::span(piece)));
      to.write(std::as_bytes(std::span(piece)));
    }
    if (!part.ended) to.write(std::as_bytes(std::span("\n", 1)));
  }
}

/// Throws WriteError if the file at `path` is there and is no regular file: an endless device, a FIFO.
void require_regular(const std::string& path) {
  const io::RegularFile found = io::open_regular_file(path);
  if (!found.kind.empty()) throw WriteError(fmt::format("{}: {}; move it away", path, found.problem()));
}

/// Remaining parts of `file`, in order; adjacent parts are merged.
std::vector<Kept> parts_to_keep(const io::File& file, std::int64_t keep_steps, KeptLines& lines) {
  std::vector<Kept> parts;
  std::int64_t begin = 0;
  for_each_line(file, [&](const std::string& line, bool ended) {
    const std::int64_t end = begin + static_cast<std::int64_t>(line.size()) + (ended ? 1 : 0);
    const std::int64_t first = std::exchange(begin, end);
    const nlohmann::json row = io::parse_or_discard(line);  // a kill may have left half a line
    const bool whole = row.is_object() && row.contains("step") && row["step"].is_number_integer();
    if (whole && row.contains("time") && row["time"].is_number())
      lines.before = {.step = row["step"], .time = row["time"]};
    if (!whole || row["step"] > keep_steps) return;
    ++lines.lines;
    if (row.contains("eval_loss") && !row.contains("loss")) lines.evaluated_step = row["step"];
    if (parts.empty() || parts.back().end != first) parts.push_back({.begin = first});
    parts.back().end = end;
    parts.back().ended = ended;
  });
  return parts;
}

}  // namespace

KeptLines keep_lines(const std::string& path, std::int64_t keep_steps) {
  KeptLines lines;
  reading([&] {
    if (io::status_of(path).kind == io::PathKind::nothing) return;
    require_regular(path);
    const io::File file = io::File::open(path);
    const std::vector<Kept> parts = parts_to_keep(file, keep_steps, lines);
    if (parts.empty() || (parts.size() == 1 && parts[0].begin == 0 && parts[0].ended)) {
      const std::int64_t end = parts.empty() ? 0 : parts[0].end;
      if (end != file.size()) io::File::update(path).resize(end);
      return;
    }
    const std::string target = io::destination_of(path).path;  // by another name first, so that a kill loses nothing
    io::File next = io::File::create(target + ".partial");
    try {
      copy(file, parts, next);
      next.sync_and_close();
      io::rename_over(next.path(), target);
    } catch (...) {
      ::unlink(next.path().c_str());
      throw;
    }
  });
  return lines;
}

MetricsFile::MetricsFile(const std::string& path, std::int64_t keep_steps)
    : kept_(keep_steps > 0 ? keep_lines(path, keep_steps) : KeptLines{}),
      file_(path, keep_steps > 0 ? LogFile::Begin::append : LogFile::Begin::empty, "lines") {}

}  // namespace trireme::train
