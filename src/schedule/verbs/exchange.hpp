// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <optional>

#include "schedule/verbs/verb.hpp"
#include "trireme/schedule/exchange.hpp"

/// Exchanges between stages, as their rows describe them.
namespace trireme::schedule {

template <>
struct Description<Exchanged> {
  static inline const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> found;
    for (const ExchangeRow& row : exchange_rows()) found.push_back(row.name);
    return found;
  }();
  static std::string_view name(const Exchanged& op) { return row_of(op.kind).name; }
  static Lane lane(const Exchanged& op) { return row_of(op.kind).lane; }
  static void effects(const Exchanged& op, Effects& on) {
    on.access(tensors_of(op, on.model), op.microbatch);
    const ExchangeRow& row = row_of(op.kind);
    const resource::Counts counts{op.block, op.microbatch};
    if (row.lane == Lane::expert) on.read(counts);
    if (row.lane == Lane::expert && row.pack != Layout::rows) on.write(counts);
    if (reads_saved(op)) on.read(resource::Saved{op.block, op.segment, op.microbatch});
  }
  /// `b0.attention m0 again`, `b0.attention m0 -> heads`.
  static std::string print(const Exchanged& op, const model::Model& model) {
    constexpr std::array phases{"", " backward", " again", " recompute"};
    const ExchangeRow& row = row_of(op.kind);
    std::string text = compute_text(model, op.block, op.segment, op.microbatch);
    if (!row.phases.only()) text += phases.at(static_cast<std::size_t>(op.phase));
    return row.direction.empty() ? text : fmt::format("{} -> {}", text, row.direction);
  }
  static Op parse(Line& line, std::string_view name) {
    const auto rows = exchange_rows();
    auto row = std::find_if(rows.begin(), rows.end(), [&](const ExchangeRow& r) { return r.name == name; });
    const auto [block, segment] = line.block_and_stage();
    const Microbatch microbatch = line.microbatch();
    const Phase phase = row->phases.only() ? *row->phases.only() : parse_phase(line);
    if (!row->direction.empty()) {
      line.take_word("->");
      while (!line.take_if(row->direction))
        if (row + 1 == rows.end() || (++row)->name != name) line.expected((row - 1)->direction);
    }
    return Exchanged{row->kind, block, segment, microbatch, phase};
  }

 private:
  /// Keys are gathered again from the saved tensors; the gradient of a norm over heads reads these, too.
  static bool reads_saved(const Exchanged& op) {
    return (op.kind == Exchange::gather_keys && op.phase == Phase::again) ||
           (op.kind == Exchange::all_reduce_statistics && op.phase == Phase::backward);
  }
  static Phase parse_phase(Line& line) {
    if (line.take_if("backward")) return Phase::backward;
    if (line.take_if("again")) return Phase::again;
    if (line.take_if("recompute")) return Phase::recompute;
    return Phase::forward;
  }
};

}  // namespace trireme::schedule
