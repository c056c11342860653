// SPDX-License-Identifier: Apache-2.0
#include "trireme/report/export.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/protobuf.hpp"
#include "report/facts.hpp"
#include "trireme/base/crc32.hpp"
#include "trireme/base/hash.hpp"
#include "trireme/config/options.hpp"
#include "trireme/report/page.hpp"

namespace trireme::report {
namespace {

using OrderedJson = nlohmann::ordered_json;
using protobuf::put_bytes;
using protobuf::put_number;

/// Unix time of the first row; 0 if rows have none.
double start_of(const RunRecord& run) {
  const Points& time = series(run, "time");
  return time.empty() ? 0 : time.front().y;
}

double end_of(const RunRecord& run) {
  const Points& time = series(run, "time");
  return time.empty() ? 0 : time.back().y;
}

std::string title_of(const RunRecord& run) {
  return run.config && !run.config->run.name.empty() ? run.config->run.name : run.name;
}

/// Equal for every export of a run.
std::uint64_t id_of(const RunRecord& run) {
  return fnv1a(fmt::format("{} {} {:.3f}", run.name, title_of(run), start_of(run)));
}

/// The values of all keys by step.
std::map<std::int64_t, std::map<std::string, double>> rows_of(const RunRecord& run) {
  std::map<std::int64_t, std::map<std::string, double>> rows;
  for (const auto& [key, points] : run.series)
    for (const Point& point : points) rows[std::llround(point.x)].try_emplace(key, point.y);
  return rows;
}

/// A value of the run file as JSON: TOML's numbers, booleans, strings and arrays mostly are; others become a string.
OrderedJson json_of(const std::string& toml) {
  OrderedJson value = OrderedJson::parse(toml, nullptr, false);
  return value.is_discarded() ? OrderedJson(toml) : value;
}

/// Text in quotes, which JSON and YAML have in common.
std::string quoted(const std::string& text) {
  return OrderedJson(text).dump(-1, ' ', true, OrderedJson::error_handler_t::replace);
}

// The transaction log of wandb: LevelDB's log format (blocks of 32 KiB) with another header and zlib's CRC-32.

constexpr std::size_t block_size = 32768, record_header = 7;

enum class Fragment : std::uint8_t { full = 1, first = 2, middle = 3, last = 4 };

void put_fragment(std::string& log, std::string_view bytes, Fragment kind) {
  const std::string checked = static_cast<char>(kind) + std::string(bytes);
  protobuf::put(log, crc32(checked));
  protobuf::put(log, static_cast<std::uint16_t>(bytes.size()));
  log += checked;
}

void put_record(std::string& log, std::string_view record) {
  bool first = true;
  do {
    std::size_t left = block_size - log.size() % block_size;
    if (left < record_header) {
      log.append(left, '\0');
      left = block_size;
    }
    const std::size_t size = std::min(left - record_header, record.size());
    const bool last = size == record.size();
    put_fragment(log, record.substr(0, size),
                 first ? (last ? Fragment::full : Fragment::first) : (last ? Fragment::last : Fragment::middle));
    record.remove_prefix(size);
    first = false;
    if (last) return;
  } while (true);
}

// Field numbers of wandb_internal.proto.
namespace field {
constexpr int number = 1, history = 2, summary = 3, run = 17, exit = 18, header = 21;  // Record
constexpr int key = 1, nested_key = 2, value_json = 16;                                // HistoryItem and others
constexpr int run_id = 1, project = 3, config = 4, display_name = 8, start_time = 17;  // RunRecord
}  // namespace field

/// A key and its value: names with slashes are one key.
std::string item_of(int name_field, const std::string& name, const std::string& json) {
  std::string item;
  put_bytes(item, static_cast<std::uint64_t>(name_field), name);
  put_bytes(item, field::value_json, json);
  return item;
}

/// The log of one run: records are numbered.
class TransactionLog {
 public:
  void add(int kind, const std::string& message) {
    std::string record;
    put_number(record, field::number, ++count_);
    put_bytes(record, static_cast<std::uint64_t>(kind), message);
    put_record(bytes_, record);
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_ = std::string(":W&B\xe1\xbe\x00", 7);
  std::int64_t count_ = 0;
};

std::string wandb_header(const RunRecord& run) {
  std::string version;
  put_bytes(version, 1, "trireme " + run.version);
  put_bytes(version, 2, "0.19.0");  // the oldest wandb that has to read it
  std::string header;
  put_bytes(header, 1, version);
  return header;
}

std::string wandb_run(const RunRecord& run, const std::string& id, const std::string& project) {
  std::map<std::string, OrderedJson> sections;
  if (run.config)
    for (const config::Option& option : config::options())
      if (const auto value = option.print(*run.config)) sections[option.section][option.key] = json_of(*value);
  if (!run.device.empty()) sections["trireme"]["device"] = run.device;
  if (!run.version.empty()) sections["trireme"]["version"] = run.version;
  std::string config;
  for (const auto& [name, values] : sections)
    put_bytes(config, 1, item_of(field::key, name, values.dump(-1, ' ', true, OrderedJson::error_handler_t::replace)));
  std::string time;
  put_number(time, 1, static_cast<std::int64_t>(start_of(run)));
  std::string record;
  put_bytes(record, field::run_id, id);
  put_bytes(record, field::project, project);
  put_bytes(record, field::config, config);
  put_bytes(record, field::display_name, title_of(run));
  put_bytes(record, field::start_time, time);
  return record;
}

std::string wandb_history(std::int64_t step, const std::map<std::string, double>& row, double start) {
  std::string history;
  const auto add = [&](const std::string& key, const std::string& json) {
    put_bytes(history, 1, item_of(field::nested_key, key, json));
  };
  add("_step", std::to_string(step));
  for (const auto& [key, value] : row) {
    if (key == "step") continue;
    add(key == "time" ? "_timestamp" : key, OrderedJson(value).dump());
    if (key == "time") add("_runtime", OrderedJson(value - start).dump());
  }
  std::string number;
  put_number(number, 1, step);
  put_bytes(history, 2, number);
  return history;
}

/// Replaces characters that MLflow does not allow in a name.
std::string mlflow_name(std::string name) {
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && std::string_view("_-. /").find(c) == std::string_view::npos)
      c = '_';
  return name;
}

std::string prometheus_name(const std::string& key) {
  std::string name = "trireme_" + key;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
}

std::string label_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? "\\n" : std::string(1, c);
  }
  return out;
}

}  // namespace

std::vector<ExportedFile> wandb_files(const RunRecord& run, const std::string& project) {
  const std::string id = fmt::format("{:08x}", static_cast<std::uint32_t>(id_of(run)));
  TransactionLog log;
  log.add(field::header, wandb_header(run));
  log.add(field::run, wandb_run(run, id, project));
  std::map<std::string, double> last;
  std::int64_t last_step = 0;
  for (const auto& [step, row] : rows_of(run)) {
    log.add(field::history, wandb_history(step, row, start_of(run)));
    for (const auto& [key, value] : row) last[key] = value;
    last_step = step;
  }
  std::string summary;
  put_bytes(summary, 1, item_of(field::nested_key, "_step", std::to_string(last_step)));
  for (const auto& [key, value] : last)
    if (key != "step" && key != "time")
      put_bytes(summary, 1, item_of(field::nested_key, key, OrderedJson(value).dump()));
  log.add(field::summary, summary);
  std::string exit;
  put_number(exit, 1, 0);
  put_number(exit, 2, std::llround(end_of(run) - start_of(run)));
  log.add(field::exit, exit);
  const std::string directory =
      fmt::format("offline-run-{:%Y%m%d_%H%M%S}-{}", fmt::gmtime(static_cast<std::time_t>(start_of(run))), id);
  return {{.path = fmt::format("{}/run-{}.wandb", directory, id), .bytes = log.bytes()}};
}

std::vector<ExportedFile> mlflow_files(const RunRecord& run, const std::string& project, const std::string& directory) {
  constexpr std::size_t longest_parameter = 6000;
  constexpr int running = 1, finished = 3;  // RunStatus
  const std::string experiment = fmt::format("{:018}", fnv1a(project) % 1'000'000'000'000'000'000U);
  const std::string id = fmt::format("{:016x}{:016x}", id_of(run), fnv1a(run.name));
  const auto milliseconds = [](double seconds) { return std::llround(1e3 * seconds); };
  const std::string root = experiment + "/" + id + "/";
  std::vector<ExportedFile> files;
  files.push_back(
      {.path = experiment + "/meta.yaml",
       .bytes = fmt::format("artifact_location: {}\nexperiment_id: '{}'\nlifecycle_stage: active\nname: {}\n",
                            quoted("file://" + directory + "/" + experiment), experiment, quoted(project))});
  files.push_back(
      {.path = root + "meta.yaml",
       .bytes = fmt::format("artifact_uri: {}\nend_time: {}\nentry_point_name: ''\nexperiment_id: '{}'\n"
                            "lifecycle_stage: active\nrun_id: {}\nrun_name: {}\nrun_uuid: {}\nsource_name: ''\n"
                            "source_type: 4\nsource_version: ''\nstart_time: {}\nstatus: {}\ntags: []\nuser_id: ''\n",
                            quoted("file://" + directory + "/" + root + "artifacts"),
                            has_ended(run) ? std::to_string(milliseconds(end_of(run))) : "null", experiment, quoted(id),
                            quoted(title_of(run)), quoted(id), milliseconds(start_of(run)),
                            has_ended(run) ? finished : running)});
  files.push_back({.path = root + "tags/mlflow.runName", .bytes = title_of(run)});
  if (!run.device.empty()) files.push_back({.path = root + "tags/trireme.device", .bytes = run.device});
  if (!run.version.empty()) files.push_back({.path = root + "tags/trireme.version", .bytes = run.version});
  for (const char* required : {"params/", "artifacts/"}) files.push_back({.path = root + required, .bytes = ""});
  if (run.config)
    for (const config::Option& option : config::options())
      if (const auto value = option.print(*run.config))
        files.push_back({.path = root + "params/" + option.name(), .bytes = value->substr(0, longest_parameter)});
  std::map<std::string, std::string> metrics;
  for (const auto& [step, row] : rows_of(run)) {
    const auto time = row.find("time");
    for (const auto& [key, value] : row)
      if (key != "step" && key != "time")
        metrics[mlflow_name(key)] +=
            fmt::format("{} {} {}\n", milliseconds(time == row.end() ? 0 : time->second), value, step);
  }
  for (auto& [name, lines] : metrics) files.push_back({.path = root + "metrics/" + name, .bytes = std::move(lines)});
  return files;
}

std::string prometheus_text(const RunRecord& run) {
  std::map<std::string, std::vector<std::pair<std::string, double>>> metrics;  // by key: (part, last value)
  for (const auto& [key, points] : run.series) {
    if (points.empty()) continue;
    const std::size_t slash = key.find('/');
    metrics[key.substr(0, slash)].emplace_back(slash == std::string::npos ? "" : key.substr(slash + 1),
                                               points.back().y);
  }
  std::string out;
  for (const auto& [key, values] : metrics) {
    const std::string name = key == "time" ? "trireme_last_row_timestamp_seconds" : prometheus_name(key);
    out += fmt::format("# HELP {0} Last value of {1} in metrics.jsonl.\n# TYPE {0} gauge\n", name, key);
    for (const auto& [part, value] : values)
      out += fmt::format("{}{{run=\"{}\"{}}} {}\n", name, label_text(run.name),
                         part.empty() ? "" : fmt::format(",part=\"{}\"", label_text(part)), value);
  }
  return out;
}

}  // namespace trireme::report
