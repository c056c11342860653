// SPDX-License-Identifier: Apache-2.0
#include "trireme/report/page.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <tuple>

#include "report/chart.hpp"
#include "report/facts.hpp"
#include "report/style.hpp"
#include "trireme/base/build_info.hpp"
#include "trireme/base/text.hpp"
#include "trireme/base/units.hpp"
#include "trireme/config/load.hpp"
#include "trireme/config/options.hpp"

namespace trireme::report {
namespace {

constexpr std::size_t most_columns = 6;  // of runs side by side
constexpr std::size_t most_blocks = 6;   // of a model in a chart
constexpr const char* block_norms = "block_grad_norms/";

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
      {"Gradient norm of parameter blocks", Unit::number, {{block_norms, ""}}, true},
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

/// Up to `most_blocks` parameter blocks at equal distances in the model, its first and last ones among them.
std::vector<std::string> shown_blocks(const RunRecord& run) {
  std::vector<std::tuple<int, int, std::string>> blocks;  // embeddings, layers by number, head
  for (const auto& [key, points] : run.series) {
    if (!key.starts_with(block_norms)) continue;
    const std::string block = key.substr(std::strlen(block_norms));
    const bool layer = block.size() > 1 && block[0] == 'b' && block[1] >= '0' && block[1] <= '9';
    blocks.emplace_back(layer ? 1 : block == "head" ? 2 : 0, layer ? std::atoi(block.c_str() + 1) : 0, block);
  }
  std::sort(blocks.begin(), blocks.end());
  std::vector<std::string> shown;
  const std::size_t count = std::min(most_blocks, blocks.size());
  for (std::size_t i = 0; i < count; ++i)
    shown.push_back(std::get<2>(blocks[count > 1 ? i * (blocks.size() - 1) / (count - 1) : 0]));
  return shown;
}

/// The keys of a curve that a run has, and their lines' names; the loss has those of named validation sets, too.
std::vector<std::pair<std::string, std::string>> keys_of(const Curve& curve, const RunRecord& run) {
  std::vector<std::pair<std::string, std::string>> keys;
  constexpr std::string_view of_set = "eval_losses/";
  for (const auto& [key, name] : curve.keys) {
    if (!series(run, key).empty()) keys.emplace_back(key, name);
    if (std::string_view(key) == block_norms)
      for (const std::string& block : shown_blocks(run)) keys.emplace_back(block_norms + block, block);
    if (std::string_view(key) != "eval_loss") continue;
    for (const auto& [of_run, points] : run.series)
      if (of_run.starts_with(of_set)) keys.emplace_back(of_run, "validation, " + of_run.substr(of_set.size()));
  }
  return keys;
}

/// A line's name in the legend, with its run if there are several.
std::string label_of(const RunRecord& run, const std::string& name, bool alone, bool only_key) {
  if (alone) return only_key ? "" : name;
  return only_key ? run.name : run.name + " " + name;
}

/// x axes of the loss.
enum class Along { steps, tokens, time };

/// (step, place on the axis); none for steps.
Points places(const RunRecord& run, Along along) {
  switch (along) {
    case Along::steps: break;
    case Along::tokens: return series(run, "tokens");
    case Along::time: return elapsed(run);
  }
  return {};
}

/// `points` with places instead of steps, between two rows in proportion.
Points placed(Points points, const Points& places) {
  if (places.empty()) return points;
  for (Point& point : points) {
    auto next =
        std::lower_bound(places.begin(), places.end(), point.x, [](const Point& a, double x) { return a.x < x; });
    if (next == places.end()) next = std::prev(places.end());
    if (next == places.begin() || next->x <= point.x) {
      point.x = next->y;
      continue;
    }
    const Point &from = *std::prev(next), &to = *next;
    point.x = from.y + (point.x - from.x) / (to.x - from.x) * (to.y - from.y);
  }
  return points;
}

void scale(Points& points, double factor) {
  for (Point& point : points) point.y *= factor;
}

/// Seconds of short runs, hours of long ones.
struct TimeUnit {
  Unit unit = Unit::seconds;
  double seconds = 1;
};
TimeUnit time_unit(std::span<const RunRecord> runs) {
  double most = 0;
  for (const RunRecord& run : runs) most = std::max(most, highest(elapsed(run)));
  if (most < 600) return {};
  return most < 3 * 3600 ? TimeUnit{.unit = Unit::minutes, .seconds = 60}
                         : TimeUnit{.unit = Unit::hours, .seconds = 3600};
}

bool is_loss(const Curve& curve) { return curve.keys.front().first == std::string_view("loss"); }

/// Range of the axis: without outliers, and of a long loss without its first fall where that would take most of the
/// axis.
Range range_of(const Curve& curve, const Points& points) {
  constexpr std::size_t long_loss = 100, first_part = 10;  // a tenth
  constexpr double most = 0.4;
  const Range all = usual_range(points);
  if (!is_loss(curve) || points.size() < long_loss) return all;
  const auto behind = points.begin() + static_cast<std::ptrdiff_t>(points.size() / first_part);
  const Range later = usual_range(Points(behind, points.end()));
  return later.high - later.low < most * (all.high - all.low) ? later : all;
}

/// The lines of one key: a long loss is smoothed, its points behind it if there are few runs.
void add_lines(Chart& chart, const Curve& curve, const Line& line, const Points& all, bool few) {
  constexpr std::size_t most_points = 1200, most_small = 300;
  const std::size_t most = few && chart.width > 500 ? most_points : most_small;
  const std::size_t window = is_loss(curve) && !line.marks ? smoothing_window(all.size()) : 1;
  Line points = line;
  points.points = thinned(all, most);
  if (window == 1) {
    chart.lines.push_back(points);
    return;
  }
  Line mean = line;
  mean.points = thinned(smoothed(all, window), most);
  if (few) mean.label += fmt::format("{}mean of {} points", line.label.empty() ? "" : ", ", window);
  points.label = "";
  points.faint = true;
  chart.lines.push_back(mean);
  if (few) chart.lines.push_back(points);
}

Chart chart_of(const Curve& curve, std::span<const RunRecord> runs, Along along, bool small) {
  constexpr int few = 3;
  const bool loss = is_loss(curve);
  Chart chart{.title = curve.title,
              .unit = curve.unit,
              .logarithmic = curve.logarithmic,
              .from_zero = curve.from_zero,
              .x_title = along == Along::steps    ? "step"
                         : along == Along::tokens ? "tokens"
                                                  : "time of training",
              .width = small  ? small_width
                       : loss ? page_width
                              : 720,
              .plot_height = loss && !small ? 330.0 : 192.0};
  const TimeUnit time = along == Along::time ? time_unit(runs) : TimeUnit{};
  if (along != Along::steps) chart.x_unit = along == Along::tokens ? Unit::count : time.unit;
  // A run's first line, and with marks its validation, have the run's color in every chart.
  const auto several = static_cast<int>(runs.size());
  int color = several;
  for (int r = 0; r < several; ++r) {
    const RunRecord& run = runs[static_cast<std::size_t>(r)];
    auto keys = keys_of(curve, run);
    if (several > few) std::erase_if(keys, [&](auto& key) { return key != keys.front() && key.first != "eval_loss"; });
    Points on_axis = places(run, along);
    if (along == Along::time) scale(on_axis, 1 / time.seconds);
    for (const auto& [key, name] : keys) {
      const bool of_run = key == keys.front().first || (several > 1 && key == "eval_loss");
      const Range range = range_of(curve, series(run, key));
      if (!curve.logarithmic)
        chart.limits = chart.limits
                           ? Range{std::min(chart.limits->low, range.low), std::max(chart.limits->high, range.high)}
                           : range;
      add_lines(chart, curve,
                {.label = several > few && key != keys.front().first
                              ? ""
                              : label_of(run, name, several == 1, keys.size() == 1 || several > few),
                 .color = (of_run ? r : color++) % palette_size,
                 .points = {},
                 .marks = key.starts_with("eval_loss")},
                placed(series(run, key), on_axis), several <= few);
    }
    const auto xs = [&](const std::vector<double>& steps) {
      Points points;
      for (const double step : steps) points.push_back({step, 0});
      std::vector<double> list;
      for (const Point& point : placed(points, on_axis)) list.push_back(point.x);
      return list;
    };
    if (several == 1) chart.verticals = xs(run.starts);
    if (several == 1 && loss) chart.skipped = xs(run.skipped_at);
  }
  return chart;
}

/// For the page's width, and for small screens.
std::string draw_twice(const Curve& curve, std::span<const RunRecord> runs, Along along) {
  const std::string svg = draw(chart_of(curve, runs, along, false));
  return svg.empty() ? ""
                     : fmt::format("<div class=\"large\">{}</div><div class=\"small\">{}</div>", svg,
                                   draw(chart_of(curve, runs, along, true)));
}

std::string draw_curve(const Curve& curve, std::span<const RunRecord> runs) {
  const std::string svg = draw_twice(curve, runs, Along::steps);
  return svg.empty() ? "" : "<div>" + svg + "</div>\n";
}

/// The loss over steps, tokens or time: radio buttons, as the page has no script.
std::string draw_loss(std::span<const RunRecord> runs) {
  const Curve& loss = curves().front();
  std::string buttons, charts;
  for (const auto& [along, id, name] : {std::tuple{Along::steps, "steps", "steps"},
                                        {Along::tokens, "tokens", "tokens"},
                                        {Along::time, "time", "time"}}) {
    const bool known = std::all_of(runs.begin(), runs.end(), [along = along](const RunRecord& run) {
      return along == Along::steps || !places(run, along).empty();
    });
    const std::string svg = known ? draw_twice(loss, runs, along) : "";
    if (svg.empty()) continue;
    buttons += fmt::format("<input type=\"radio\" name=\"along\" id=\"{0}\"{2}/><label for=\"{0}\">{1}</label>\n", id,
                           name, along == Along::steps ? " checked" : "");
    charts += fmt::format("<div class=\"{}\">{}</div>\n", id, svg);
  }
  return charts.empty() ? "" : "<div class=\"along\">" + buttons + charts + "</div>\n";
}

/// The drawn numbers of every curve, in full digits.
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
    auto next = names.begin();  // after the fact before
    for (auto& [name, text] : facts(run)) {
      const auto found = std::find(names.begin(), names.end(), name);
      next = std::next(found == names.end() ? names.insert(next, name) : found);
      column[name] = text;
    }
  }
  std::string out = "<div class=\"scroll\"><table id=\"facts\" class=\"one\">\n";
  if (runs.size() > 1) {
    out = "<div class=\"scroll\"><table id=\"facts\"><tr><th>run</th>";
    for (const RunRecord& run : runs) out += fmt::format("<th>{}</th>", escaped(run.name));
    out += "</tr>\n";
  }
  for (const std::string& name : names) {
    const bool equal = runs.size() > 1 && std::all_of(columns.begin(), columns.end(), [&](auto& column) {
                         return column[name] == columns.front()[name];
                       });
    out += fmt::format("<tr{}><th>{}</th>", equal ? " class=\"equal\"" : "", escaped(name));
    for (auto& column : columns) out += fmt::format("<td>{}</td>", escaped(column[name]));
    out += "</tr>\n";
  }
  out += "</table></div>\n";
  if (runs.size() <= most_columns) return out;
  return "<details><summary>all figures, side by side</summary>" + out + "</details>\n";
}

std::string figure_cards(const RunRecord& run) {
  std::string out = "<div class=\"figures\">";
  for (const Figure& figure : figures(run))
    out += fmt::format("<div><span>{}</span><strong>{}</strong><small>{}</small></div>", escaped(figure.name),
                       escaped(figure.text), escaped(figure.note));
  return out + "</div>\n";
}

/// Keys whose values differ between the run files, and each run's value.
std::vector<std::pair<std::string, std::vector<std::string>>> different_settings(std::span<const RunRecord> runs) {
  std::vector<std::pair<std::string, std::vector<std::string>>> list;
  for (const config::Option& option : config::options()) {
    const std::string name = option.name();
    if (name == "run.name" || name == "run.output" || name == "checkpoint.directory") continue;
    std::vector<std::string> values;
    for (const RunRecord& run : runs) values.push_back(run.config ? option.print(*run.config).value_or("") : "?");
    if (std::any_of(values.begin(), values.end(), [&](const std::string& value) { return value != values.front(); }))
      list.emplace_back(name, std::move(values));
  }
  return list;
}

/// A row for each run, the lowest loss first: validation where all runs have it.
std::string runs_table(std::span<const RunRecord> runs) {
  constexpr std::size_t most_settings = 12;
  const bool validated =
      std::all_of(runs.begin(), runs.end(), [](const RunRecord& run) { return best_validation(run); });
  const auto score = [&](std::size_t r) {
    constexpr double none = std::numeric_limits<double>::infinity();
    if (validated) return best_validation(runs[r])->y;
    if (const auto last = last_loss(runs[r])) return last->value;
    return none;
  };
  std::vector<std::size_t> order(runs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return score(a) < score(b); });

  const auto settings = different_settings(runs);
  std::string out = "<div class=\"scroll\"><table id=\"runs\"><tr><th>run</th>";
  for (const char* name : {"loss", "best validation", "tokens/s", "MFU", "time", "memory", "steps"})
    out += fmt::format("<th class=\"n\">{}</th>", name);
  for (std::size_t i = 0; i < std::min(settings.size(), most_settings); ++i)
    out += fmt::format("<th class=\"n\">{}</th>", escaped(settings[i].first));
  out += "</tr>\n";
  for (const std::size_t r : order) {
    const RunRecord& run = runs[r];
    const auto last = last_loss(run);
    const auto best = best_validation(run);
    const Points time = elapsed(run);
    const double memory = highest(series(run, "memory_peak_bytes/device/total"));
    out += fmt::format(
        "<tr><td><svg class=\"swatch\" viewBox=\"0 0 10 10\"><rect class=\"f{}\" width=\"10\" "
        "height=\"10\"/></svg>{}</td>",
        r % palette_size, escaped(run.name));
    for (const std::string& text :
         {last ? fmt::format("{:.4g}", last->value) : "", best ? fmt::format("{:.4g}", best->y) : "",
          text_of(median(series(run, "tokens_per_second")), Unit::count),
          series(run, "mfu").empty() ? "" : text_of(median(series(run, "mfu")), Unit::share),
          time.empty() ? "" : duration_text(time.back().y), memory > 0 ? text_of(memory, Unit::bytes) : "",
          fmt::format("{}{}", series(run, "step").empty() ? 0 : series(run, "step").back().y,
                      run.config && !has_ended(run) ? fmt::format(" of {}", run.config->train.steps) : "")})
      out += fmt::format("<td class=\"n\">{}</td>", escaped(text));
    for (std::size_t i = 0; i < std::min(settings.size(), most_settings); ++i)
      out += fmt::format("<td class=\"n\">{}</td>", escaped(settings[i].second[r]));
    out += "</tr>\n";
  }
  out += "</table></div>\n";
  if (settings.size() > most_settings) {
    std::vector<std::string> others;
    for (std::size_t i = most_settings; i < settings.size(); ++i) others.push_back(settings[i].first);
    out += fmt::format("<p>The runs also differ in {}.</p>\n", escaped(join(others, ", ")));
  }
  return out;
}

std::string memory_table(const RunRecord& run) {
  const std::string device = "memory_peak_bytes/device/", host = "memory_peak_bytes/host/";
  std::string out =
      "<h2>Memory by category, peak of rank 0</h2><table><tr><th>category</th><th class=\"n\">device</th><th "
      "class=\"n\">host</th></tr>\n";
  std::string rows, sum;
  const auto add = [&](const std::string& category, std::string& to, const char* kind) {
    const double on_device = highest(series(run, device + category)), on_host = highest(series(run, host + category));
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

std::string goodput_table(const RunRecord& run) {
  if (!run.goodput || run.goodput->total() == 0) return "";
  const Goodput& goodput = *run.goodput;
  const auto counted = [](std::int64_t count, const char* what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
  };
  std::string out = fmt::format(
      "<h2>Goodput</h2><p>{} of {} in new steps; {}, {}{}.</p><table><tr><th>part</th><th class=\"n\">time</th><th "
      "class=\"n\">share</th></tr>\n",
      escaped(text_of(goodput.share(), Unit::share)), escaped(duration_text(goodput.total())),
      counted(goodput.attempts, "attempt"), counted(goodput.failures, "failure"),
      goodput.between_jobs > 1 ? fmt::format(", {} between jobs", escaped(duration_text(goodput.between_jobs))) : "");
  for (const auto& [name, seconds] : named_parts(goodput))
    out += fmt::format("<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n", escaped(name),
                       escaped(duration_text(seconds)), escaped(text_of(seconds / goodput.total(), Unit::share)));
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
  return fmt::format("<h2>Step {}</h2>\n<div class=\"wide scroll\">{}</div>\n", run.trace->step,
                     draw_timeline(*run.trace)) +
         (memory.lines.empty() ? "" : "<div class=\"wide scroll\">" + draw(memory) + "</div>\n");
}

std::string about_run(const RunRecord& run, bool alone) {
  std::string out = alone ? "" : fmt::format("<h1>{}</h1>\n", escaped(run.name));
  out += traced_step(run) + "<div class=\"charts\">";
  for (const std::string& table : {goodput_table(run), memory_table(run), traffic_table(run), rank_table(run)})
    if (!table.empty()) out += "<section>" + table + "</section>";  // each has a heading
  out += "</div>\n";
  if (run.config)
    out += fmt::format("<details><summary>run file</summary><pre>{}</pre></details>\n",
                       escaped(config::print_run_file(*run.config)));
  return out;
}

}  // namespace

std::string page(std::span<const RunRecord> runs, int reload_seconds) {
  std::vector<std::string> names;
  for (const RunRecord& run : runs) names.push_back(run.name);
  const bool alone = runs.size() == 1, few = runs.size() <= most_columns;
  const std::string title = few ? join(names, ", ") : fmt::format("{} runs", runs.size());
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n{2}"
      "<meta name=\"viewport\" content=\"width=device-width\"><title>Trireme: {0}</title><style>{1}</style></head>\n"
      "<body><main><h1>{0}</h1>\n",
      escaped(title), style_sheet(),
      reload_seconds > 0 ? fmt::format("<meta http-equiv=\"refresh\" content=\"{}\">\n", reload_seconds) : "");
  if (reload_seconds > 0)
    out += fmt::format("<p class=\"origin\">as of {:%Y-%m-%d %H:%M:%S} UTC; reloads every {} s</p>\n",
                       fmt::gmtime(std::time(nullptr)), reload_seconds);
  if (alone)
    out += fmt::format("<p class=\"origin\">{}</p>\n", escaped(origin(runs.front()))) + figure_cards(runs.front());
  for (const RunRecord& run : runs)
    for (const std::string& warning : warnings(run))
      out += fmt::format("<p class=\"warning\">{}{}</p>\n", alone ? "" : escaped(run.name) + ": ", escaped(warning));
  if (!alone) out += runs_table(runs);
  out += draw_loss(runs);
  out += facts_table(runs);
  out += "<div class=\"charts\">\n";
  for (const Curve& curve : curves())
    if (!is_loss(curve)) out += draw_curve(curve, runs);
  out += "</div>\n";
  for (const RunRecord& run : runs)
    out += few ? about_run(run, alone)
               : fmt::format("<details><summary>{}</summary>{}</details>\n", escaped(run.name), about_run(run, false));
  out += fmt::format("<script type=\"application/json\" id=\"series\">{}</script>\n", series_json(runs));
  return out + fmt::format("<p>Written by Trireme {}.</p></main></body></html>\n", escaped(build_info().version));
}

}  // namespace trireme::report
