// SPDX-License-Identifier: Apache-2.0
#include "planner/validate/fit_report.hpp"

#include <fmt/format.h>

#include <map>
#include <set>

#include "planner/validate/error_stats.hpp"
#include "trireme/planner/validate/fit.hpp"

namespace trireme::planner {
namespace {

using Rows = std::vector<PublishedRow>;

/// Half of the rows, by configuration: twins that differ in nothing else fall on the same side.
bool trains(const PublishedRow& row) {
  const std::string key = fmt::format("{} {} {} {} {} {} {}", row.model, row.ranks, static_cast<int>(row.sharding),
                                      row.dp, row.tensor, row.pipeline, row.micro);
  std::uint64_t hash = 14695981039346656037ULL;  // FNV-1a
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return ((hash >> 32) & 1) == 0;
}

ErrorStats errors(const Rows& rows, const Fleet& fleet) {
  std::vector<double> all;
  for (const PublishedRow& row : rows) all.push_back(predicted_rate(row, fleet) / row.tokens_per_second_per_gpu - 1);
  return error_stats(all);
}

std::string line(const std::string& name, const Rows& rows, const Fleet& fleet) {
  const ErrorStats e = errors(rows, fleet);
  return fmt::format("{}: {} rows, tokens/s median {:.1f}% p90 {:.1f}% largest {:.1f}%\n", name, rows.size(),
                     100 * e.median, 100 * e.p90, 100 * e.largest);
}

std::string choices(const Rows& rows, const Fleet& fleet) {
  std::map<std::pair<std::string, double>, std::vector<std::pair<double, double>>> tables;  // predicted, measured
  for (const PublishedRow& row : rows)
    tables[{row.model, row.ranks}].emplace_back(predicted_rate(row, fleet), row.tokens_per_second_per_gpu);
  int first = 0, three = 0, count = 0;
  for (auto& [key, table] : tables) {
    if (table.size() < 4) continue;
    ++count;
    double best = 0, taken = 0;
    for (const auto& [predicted, measured] : table) best = std::max(best, measured);
    std::ranges::sort(table, std::ranges::greater{});
    first += table.front().second >= 0.95 * best ? 1 : 0;
    for (std::size_t i = 0; i < 3; ++i) taken = std::max(taken, table[i].second);
    three += taken >= 0.95 * best ? 1 : 0;
  }
  return fmt::format(
      "choice: {} tables, the predicted best is within 5% of the true best in {}, the best of three in {}\n", count,
      first, three);
}

std::string numbers(const Fleet& f) {
  return fmt::format(
      "  products {:.0f} TFLOP/s, attention {:.0f} TFLOP/s, memory {:.2f} TB/s, inside {:.0f} GB/s, between "
      "{:.0f} GB/s, {:.2f} us a rank, {:.0f} us a call, {:.2f} ms a layer, {:.0f} ms a step\n",
      f.machine.products.back().rate / 1e12, f.machine.attention_flops / 1e12, f.machine.memory_bandwidth / 1e12,
      f.machine.inside.bandwidth / 1e9, f.machine.between.bandwidth / 1e9, f.machine.between.rank_latency * 1e6,
      f.trainer.latency * 1e6, f.trainer.layer_seconds * 1e3, f.trainer.step_seconds * 1e3);
}

std::string fleet_report(const std::string& name, const Rows& rows) {
  const Fleet start{.machine = *machine_of(rows.front()), .trainer = trainer_of(rows.front())};
  Rows train, test;
  std::set<std::string> models;
  for (const PublishedRow& row : rows) {
    (trains(row) ? train : test).push_back(row);
    models.insert(row.model);
  }
  const Fleet fleet = fitted(start, train);
  std::string out = fmt::format("{}: fitted on the train half\n{}", name, numbers(fleet));
  out += line("  train half", train, fleet) + line("  test half", test, fleet);
  out += line("  test half, numbers as shipped", test, start);
  out += "  all rows, numbers as shipped, " + choices(rows, start);
  for (const std::string& model : models) {
    Rows others, left;
    for (const PublishedRow& row : rows) (row.model == model ? left : others).push_back(row);
    if (left.size() >= 10 && !others.empty()) out += line("  " + model + " left out", left, fitted(start, others));
  }
  return out;
}

}  // namespace

std::string fit_report(const std::vector<PublishedRow>& rows) {
  std::map<std::string, Rows> fleets;
  for (const PublishedRow& row : rows) {
    if (!row.left_out.empty() || row.pipeline > 1 || row.ranks > 256 || row.sharding >= Sharding::zero2) continue;
    if (row.tensor <= machine_of(row)->gpus_per_node) fleets[row.framework + " on " + row.gpu].push_back(row);
  }
  std::string out;
  for (const auto& [name, members] : fleets)
    if (members.size() >= 100) out += fleet_report(name, members);
  return out.empty() ? "no fleet has a hundred rows to fit\n" : out;
}

}  // namespace trireme::planner
