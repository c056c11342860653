// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/validate/validate.hpp"

#include <fmt/format.h>

#include <map>
#include <tuple>

#include "planner/validate/error_stats.hpp"
#include "planner/validate/fit_report.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/text.hpp"
#include "trireme/planner/time/percentiles.hpp"
#include "trireme/planner/validate/fit.hpp"
#include "trireme/planner/validate/published.hpp"

namespace trireme::planner {
namespace {

/// A row and its result.
struct Checked {
  PublishedRow row;
  double rate = 0, plain_rate = 0;  ///< predicted tokens/s of one GPU, with and without calibration
  [[nodiscard]] double error() const { return rate / row.tokens_per_second_per_gpu - 1; }
  [[nodiscard]] double plain_error() const { return plain_rate / row.tokens_per_second_per_gpu - 1; }
};

/// Keeps only the fastest of rows with the same configuration: the other repeats were disturbed.
void leave_out_repeats(std::vector<PublishedRow>& rows) {
  using Key =
      std::tuple<std::string, std::string, std::string, std::string, std::string, std::string, std::vector<double>>;
  std::map<Key, PublishedRow*> fastest;
  for (PublishedRow& row : rows) {
    if (!row.left_out.empty()) continue;
    const Key key{row.source,
                  row.framework,
                  row.model,
                  row.gpu,
                  row.note,
                  row.recompute,
                  {row.ranks, row.seq_len, row.micro, row.accumulation, row.dp, row.tensor, row.pipeline, row.chunks,
                   row.replicas, static_cast<double>(row.sharding)}};
    const auto [found, fresh] = fastest.emplace(key, &row);
    if (fresh) continue;
    PublishedRow*& kept = found->second;
    if (row.calibrates || kept->calibrates) continue;
    const bool faster = row.tokens_per_second_per_gpu > kept->tokens_per_second_per_gpu;
    (faster ? kept : &row)->left_out = "slower of two equal runs";
    if (faster) kept = &row;
  }
}

/// Stalled pipelines: every slot takes 0.45 s longer than that of the fastest run of the same model, TP and microbatch.
/// Uses measured times, so it only selects the compared rows.
void leave_out_stalled(std::vector<PublishedRow>& rows) {
  const auto slots = [](const PublishedRow& row) { return row.accumulation + row.pipeline - 1; };
  const auto slot_seconds = [&](const PublishedRow& row) {
    const double step = row.dp * row.tokens() * row.accumulation / row.ranks / row.tokens_per_second_per_gpu;
    return step / slots(row);
  };
  std::map<std::tuple<std::string, std::string, double, double>, double> fastest;  // seconds of a layer's slot
  const auto key = [](const PublishedRow& row) { return std::tuple{row.source, row.model, row.tensor, row.micro}; };
  for (const PublishedRow& row : rows) {
    if (!row.left_out.empty()) continue;
    const double layer = slot_seconds(row) * row.pipeline / row.layers;
    const auto [found, fresh] = fastest.emplace(key(row), layer);
    if (!fresh) found->second = std::min(found->second, layer);
  }
  for (PublishedRow& row : rows)
    if (row.left_out.empty() && row.pipeline > 1 && slots(row) >= 8 &&
        slot_seconds(row) > fastest.at(key(row)) * row.layers / row.pipeline + 0.45)
      row.left_out = "stalled pipeline";
}

Fleet fleet_of(const PublishedRow& row) {
  Fleet fleet{.machine = *machine_of(row), .trainer = trainer_of(row)};
  if (row.power_limit && fleet.machine.board_watts > *row.power_limit)
    fleet.machine = with_compute_rate(fleet.machine, std::sqrt(*row.power_limit / fleet.machine.board_watts));
  return fleet;
}

std::string family_name(const PublishedRow& row, const Machine& machine) {
  const bool across = row.tensor > machine.gpus_per_node;
  return across ? "TP across nodes (not validated)" : std::string(to_text(row.family()));
}

class Validation {
 public:
  explicit Validation(std::vector<PublishedRow> rows) : rows_(std::move(rows)) {
    leave_out_repeats(rows_);
    leave_out_stalled(rows_);
    for (const PublishedRow& row : rows_)
      if (row.calibrates && row.left_out.empty()) calibrate_[source_of(row)].push_back(row);
    for (PublishedRow& row : rows_)
      if (row.left_out.empty()) check(row);
  }

  [[nodiscard]] std::string text() {
    std::string out;
    for (const Checked& c : checked_)
      if (!c.row.calibrates) out += row_line(c);
    for (const PublishedRow& row : rows_) {
      ++count_[{row.left_out, std::string(to_text(row.family()))}];
      if (!row.left_out.empty()) out += fmt::format("line {}: {}: left out: {}\n", row.line, row.model, row.left_out);
    }
    out += "\n";
    std::map<std::string, std::vector<const Checked*>> families;
    for (const Checked& c : checked_)
      if (!c.row.calibrates) families[family_name(c.row, *machine_of(c.row))].push_back(&c);
    for (const auto& [name, members] : families) out += family_lines(name, members);
    out += fmt::format("\nrows used: {}\n", checked_.size());
    for (const auto& [why, count] : count_)
      if (!why.first.empty()) out += fmt::format("rows left out: {}: {} ({})\n", why.second, count, why.first);
    return out;
  }
  [[nodiscard]] const std::vector<PublishedRow>& rows() const { return rows_; }

 private:
  static std::string source_of(const PublishedRow& row) { return row.source + "\n" + row.gpu + "\n" + row.framework; }

  void check(PublishedRow& row) {
    try {
      const std::string source = source_of(row);
      if (!fleets_.contains(source)) {
        const Fleet plain = fleet_of(row);
        const auto calibrate = calibrate_.find(source);
        fleets_[source] = {plain, calibrate == calibrate_.end() ? plain : calibrated(plain, calibrate->second)};
      }
      const auto& [plain, fleet] = fleets_.at(source);
      const Trainer trainer = trainer_of(row);
      const double rate = predicted_rate(row, {fleet.machine, trainer});
      checked_.push_back({.row = row, .rate = rate, .plain_rate = predicted_rate(row, {plain.machine, trainer})});
    } catch (const ConfigError& error) {
      std::string why = error.what();
      std::ranges::replace(why, '\n', ' ');
      row.left_out = why;
    }
  }

  static std::string row_line(const Checked& c) {
    const PublishedRow& r = c.row;
    std::string memory;
    if (r.memory)
      memory = fmt::format(", memory {:.1f} GB predicted {:.1f} error {:+.1f}%", *r.memory / 1e9,
                           published_memory(r) / 1e9, 100 * (published_memory(r) / *r.memory - 1));
    return fmt::format(
        "line {}: {} on {:.0f}, dp {:.0f} tp {:.0f} pp {:.0f} mbs {:.0f}: tokens/s {:.0f} predicted {:.0f} "
        "error {:+.1f}%{}\n",
        r.line, r.model, r.ranks, r.dp, r.tensor, r.pipeline, r.micro, r.tokens_per_second_per_gpu, c.rate,
        100 * c.error(), memory);
  }

  static std::string family_lines(const std::string& name, const std::vector<const Checked*>& members) {
    std::vector<double> errors, memory;
    int within = 0;
    for (const Checked* c : members) {
      errors.push_back(c->error());
      within += std::abs(c->plain_error()) <= 0.15 ? 1 : 0;
      if (c->row.memory) memory.push_back(published_memory(c->row) / *c->row.memory - 1);
    }
    const ErrorStats time = error_stats(errors), bytes = error_stats(memory);
    std::string out = fmt::format("{}: {} rows, tokens/s median {:.1f}% p90 {:.1f}% largest {:.1f}%", name,
                                  members.size(), 100 * time.median, 100 * time.p90, 100 * time.largest);
    out += memory.empty() ? ", memory not measured"
                          : fmt::format(", memory median {:.1f}% p90 {:.1f}% largest {:.1f}%", 100 * bytes.median,
                                        100 * bytes.p90, 100 * bytes.largest);
    return out + fmt::format("; without calibration {:.0f}% of the rows within 15%\n",
                             100.0 * within / static_cast<double>(members.size()));
  }

  std::vector<PublishedRow> rows_;
  std::vector<Checked> checked_;
  std::map<std::string, std::vector<PublishedRow>> calibrate_;  ///< by source
  std::map<std::string, std::pair<Fleet, Fleet>> fleets_;       ///< without and with calibration
  std::map<std::pair<std::string, std::string>, int> count_;
};

}  // namespace

std::string validate(std::string_view csv, const std::string& name, bool fit) {
  Validation validation(read_published(csv, name));
  std::string out = validation.text();
  if (fit) out += "\n" + fit_report(validation.rows());
  return out;
}

}  // namespace trireme::planner
