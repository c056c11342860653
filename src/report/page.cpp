// SPDX-License-Identifier: Apache-2.0
#include "trireme/report/page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "report/chart.hpp"
#include "report/facts.hpp"
#include "report/style.hpp"
#include "trireme/base/build_info.hpp"
#include "trireme/config/load.hpp"

namespace trireme::report {
namespace {

struct Curve {
  const char* title;
  Unit unit;
  std::vector<std::pair<const char*, const char*>> keys;  ///< of metrics.jsonl, and the line's name among them
  bool logarithmic = false, from_zero = false;
};

const std::vector<Curve>& curves() {
  static const std::vector<Curve> list = {
      {"Loss (nats per token)", Unit::number, {{"loss", "training"}, {"eval_loss", "validation"}}},
      {"Gradient norm, before clipping", Unit::number, {{"grad_norm", ""}}, true},
      {"Load of the busiest expert, over the mean", Unit::number, {{"expert_load_max", ""}}, false, true},
      {"Learning rate", Unit::number, {{"lr", ""}}, false, true},
      {"Throughput (tokens/s)", Unit::count, {{"tokens_per_second", ""}}, false, true},
      {"Model FLOPs utilization", Unit::share, {{"mfu", ""}}, false, true},
      {"Time of a step",
       Unit::seconds,
       {{"step_seconds", "whole step"},
        {"exposed_comm_seconds", "waiting for communication"},
        {"data_seconds", "waiting for data"}},
       false,
       true},
      {"Peak memory of a step, rank 0",
       Unit::bytes,
       {{"memory_peak_bytes/device/total", "device"},
        {"memory_peak_bytes/host/total", "host"},
        {"memory_peak_bytes/rss", "resident set"}},
       false,
       true}};
  return list;
}

/// The keys of a curve that a run has, and their lines' names; the loss has those of named validation sets, too.
std::vector<std::pair<std::string, std::string>> keys_of(const Curve& curve, const RunRecord& run) {
  std::vector<std::pair<std::string, std::string>> keys;
  constexpr std::string_view of_set = "eval_losses/";
  for (const auto& [key, name] : curve.keys) {
    if (!series(run, key).empty()) keys.emplace_back(key, name);
    if (std::string_view(key) != "eval_loss") continue;
    for (const auto& [of_run, points] : run.series)
      if (of_run.starts_with(of_set)) keys.emplace_back(of_run, "validation, " + of_run.substr(of_set.size()));
  }
  return keys;
}

/// A line's name in the legend: what it is, and of which run where there are several.
std::string label_of(const RunRecord& run, const std::string& name, bool alone, bool only_key) {
  if (alone) return only_key ? "" : name;
  return only_key ? run.name : run.name + " " + name;
}

std::string draw_curve(const Curve& curve, std::span<const RunRecord> runs) {
  Chart chart{.title = curve.title,
              .unit = curve.unit,
              .logarithmic = curve.logarithmic,
              .from_zero = curve.from_zero,
              .x_title = "step"};
  // A run's first line, and with marks its validation, have the run's color in every chart.
  const auto several = static_cast<int>(runs.size());
  int color = several;
  for (int r = 0; r < several; ++r) {
    const RunRecord& run = runs[static_cast<std::size_t>(r)];
    const auto keys = keys_of(curve, run);
    for (const auto& [key, name] : keys) {
      const bool of_run = key == keys.front().first || (several > 1 && key == "eval_loss");
      chart.lines.push_back({.label = label_of(run, name, several == 1, keys.size() == 1),
                             .color = (of_run ? r : color++) % palette_size,
                             .points = thinned(series(run, key)),
                             .marks = key.starts_with("eval_loss")});
    }
    if (several == 1) chart.verticals = run.starts;
  }
  const std::string svg = draw(chart);
  return svg.empty() ? "" : "<div>" + svg + "</div>\n";
}

/// Every curve's numbers: what is drawn, in full digits.
std::string series_json(std::span<const RunRecord> runs) {
  using Json = nlohmann::ordered_json;
  Json all = Json::array();
  for (const RunRecord& run : runs) {
    Json by_key = Json::object();
    for (const Curve& curve : curves())
      for (const auto& [key, name] : keys_of(curve, run)) {
        Json points = Json::array();
        for (const Point& point : thinned(series(run, key))) points.push_back(Json::array({point.x, point.y}));
        if (!points.empty()) by_key[key] = std::move(points);
      }
    all.push_back({{"run", run.name}, {"series", std::move(by_key)}});
  }
  std::string text = all.dump(-1, ' ', true, Json::error_handler_t::replace);
  for (std::size_t at = 0; (at = text.find('<', at)) != std::string::npos;) text.replace(at, 1, "\\u003c");
  return text;
}

std::string facts_table(std::span<const RunRecord> runs) {
  std::vector<std::string> names;  // in order, each once
  std::vector<std::map<std::string, std::string>> columns;
  for (const RunRecord& run : runs) {
    auto& column = columns.emplace_back();
    auto next = names.begin();  // behind the fact before
    for (auto& [name, text] : facts(run)) {
      const auto found = std::find(names.begin(), names.end(), name);
      next = std::next(found == names.end() ? names.insert(next, name) : found);
      column[name] = text;
    }
  }
  std::string out = "<table id=\"facts\" class=\"one\">\n";
  if (runs.size() > 1) {
    out = "<table id=\"facts\"><tr><th>run</th>";
    for (const RunRecord& run : runs) out += fmt::format("<th>{}</th>", escaped(run.name));
    out += "</tr>\n";
  }
  for (const std::string& name : names) {
    out += fmt::format("<tr><th>{}</th>", escaped(name));
    for (auto& column : columns) out += fmt::format("<td>{}</td>", escaped(column[name]));
    out += "</tr>\n";
  }
  return out + "</table>\n";
}

std::string memory_table(const RunRecord& run) {
  const std::string device = "memory_peak_bytes/device/", host = "memory_peak_bytes/host/";
  std::string out =
      "<h2>Memory by category, peak of rank 0</h2><table><tr><th>category</th><th class=\"n\">device</th><th "
      "class=\"n\">host</th></tr>\n";
  const auto most = [](const Points& points) {
    double bytes = 0;
    for (const Point& point : points) bytes = std::max(bytes, point.y);
    return bytes;
  };
  std::string rows, sum;
  const auto add = [&](const std::string& category, std::string& to, const char* kind) {
    const double on_device = most(series(run, device + category)), on_host = most(series(run, host + category));
    if (on_device == 0 && on_host == 0) return;
    const auto text = [](double bytes) { return bytes == 0 ? "" : escaped(text_of(bytes, Unit::bytes)); };
    to += fmt::format("<tr{}><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n", kind,
                      category == "total" ? "all at once" : escaped(category), text(on_device), text(on_host));
  };
  for (const auto& [key, points] : run.series)
    if (key.starts_with(device) && key != device + "total") add(key.substr(device.size()), rows, "");
  add("total", sum, " class=\"sum\"");
  return rows.empty() ? "" : out + rows + sum + "</table>\n";
}

std::string traffic_table(const RunRecord& run) {
  if (run.bytes.empty()) return "";
  std::string out =
      "<h2>Traffic of a step, sent by rank "
      "0</h2><table><tr><th>group</th><th>operation</th><th class=\"n\">bytes</th><th class=\"n\">calls</th></tr>\n";
  for (const auto& [group, operations] : run.bytes)
    for (const auto& [operation, bytes] : operations) {
      const auto calls = run.calls.find(group);
      const bool known = calls != run.calls.end() && calls->second.contains(operation);
      out += fmt::format("<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n",
                         escaped(group), escaped(operation), escaped(text_of(bytes, Unit::bytes)),
                         known ? fmt::format("{:.0f}", calls->second.at(operation)) : "");
    }
  return out + "</table>\n";
}

std::string rank_table(const RunRecord& run) {
  constexpr std::size_t shown = 32;
  if (run.ranks.empty()) return "";
  std::vector<RankTimes> ranks = run.ranks;
  std::stable_sort(ranks.begin(), ranks.end(), [](auto& a, auto& b) { return a.median_seconds > b.median_seconds; });
  std::string out = fmt::format(
      "<h2>Step times by rank</h2><p>A rank's own part of a step, without waiting for others, rounded up by at most a "
      "fifth; the slowest first{}.</p><table><tr><th>rank</th><th class=\"n\">median</th><th class=\"n\">95 "
      "%</th><th class=\"n\">longest</th></tr>\n",
      ranks.size() > shown ? fmt::format(", {} of {}", shown, ranks.size()) : "");
  for (std::size_t i = 0; i < std::min(shown, ranks.size()); ++i)
    out += fmt::format("<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n",
                       escaped(ranks[i].name), escaped(text_of(ranks[i].median_seconds, Unit::seconds)),
                       escaped(text_of(ranks[i].p95_seconds, Unit::seconds)),
                       escaped(text_of(ranks[i].max_seconds, Unit::seconds)));
  return out + "</table>\n";
}

std::string traced_step(const RunRecord& run) {
  if (!run.trace) return "";
  Chart memory{.title = fmt::format("Device memory over step {}, rank 0", run.trace->step),
               .unit = Unit::bytes,
               .stacked = true,
               .x_unit = Unit::seconds,
               .width = page_width};
  int color = 0;
  for (const auto& [category, points] : run.trace->memory)
    if (std::any_of(points.begin(), points.end(), [](const Point& point) { return point.y > 0; }))
      memory.lines.push_back({.label = category, .color = color++ % palette_size, .points = points});
  return fmt::format("<h2>Step {}</h2>\n<div class=\"wide\">{}</div>\n", run.trace->step, draw_timeline(*run.trace)) +
         (memory.lines.empty() ? "" : "<div class=\"wide\">" + draw(memory) + "</div>\n");
}

std::string about_run(const RunRecord& run, bool alone) {
  std::string out = alone ? "" : fmt::format("<h1>{}</h1>\n", escaped(run.name));
  out += traced_step(run) + "<div class=\"charts\">";
  for (const std::string& table : {memory_table(run), traffic_table(run), rank_table(run)})
    if (!table.empty()) out += "<section>" + table + "</section>";  // each has a heading
  out += "</div>\n";
  if (run.config)
    out += fmt::format("<details><summary>run file</summary><pre>{}</pre></details>\n",
                       escaped(config::print_run_file(*run.config)));
  return out;
}

}  // namespace

std::string page(std::span<const RunRecord> runs) {
  std::string title;
  for (const RunRecord& run : runs) title += (title.empty() ? "" : ", ") + run.name;
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\"><title>Trireme: {0}</title><style>{1}</style></head>\n"
      "<body><main><h1>{0}</h1>\n",
      escaped(title), style_sheet());
  for (const RunRecord& run : runs)
    for (const std::string& warning : warnings(run))
      out += fmt::format("<p class=\"warning\">{}{}</p>\n", runs.size() == 1 ? "" : escaped(run.name) + ": ",
                         escaped(warning));
  out += facts_table(runs);
  out += "<div class=\"charts\">\n";
  for (const Curve& curve : curves()) out += draw_curve(curve, runs);
  out += "</div>\n";
  for (const RunRecord& run : runs) out += about_run(run, runs.size() == 1);
  out += fmt::format("<script type=\"application/json\" id=\"series\">{}</script>\n", series_json(runs));
  return out + fmt::format("<p>Written by Trireme {}.</p></main></body></html>\n", escaped(build_info().version));
}

}  // namespace trireme::report
