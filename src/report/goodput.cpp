// SPDX-License-Identifier: Apache-2.0
#include "trireme/report/goodput.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <ranges>
#include <span>
#include <utility>

#include "base/io/json.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/descriptor.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/base/text.hpp"
#include "trireme/base/units.hpp"

namespace trireme::report {
namespace {

using Kind = GoodputEvent::Kind;

constexpr std::array<std::pair<Kind, const char*>, 8> kinds{{{Kind::start, "start"},
                                                             {Kind::load, "load"},
                                                             {Kind::caught_up, "caught_up"},
                                                             {Kind::save, "save"},
                                                             {Kind::evaluation, "evaluation"},
                                                             {Kind::end, "end"},
                                                             {Kind::failure, "failure"},
                                                             {Kind::restart, "restart"}}};
constexpr std::int64_t most_event_bytes = std::int64_t{1} << 30;
constexpr double least_shown_seconds = 0.05;

const char* name_of(Kind kind) { return std::ranges::find(kinds, kind, &std::pair<Kind, const char*>::first)->second; }

/// Nothing for a key of another type, or a number that is not finite.
std::optional<double> number_at(const nlohmann::json& row, const char* key) {
  const auto found = row.find(key);
  if (found == row.end() || !found->is_number() || !std::isfinite(found->get<double>())) return std::nullopt;
  return found->get<double>();
}

std::int64_t step_at(const nlohmann::json& row) {
  const auto found = row.find("step");
  return found != row.end() && found->is_number_integer() ? found->get<std::int64_t>() : -1;
}

std::optional<GoodputEvent> event_of(const nlohmann::json& row) {
  if (!row.is_object() || !row.contains("event") || !row["event"].is_string()) return std::nullopt;
  const auto kind =
      std::ranges::find_if(kinds, [&](const auto& named) { return row["event"] == std::string(named.second); });
  const std::optional<double> time = number_at(row, "time");
  if (kind == kinds.end() || !time) return std::nullopt;
  return GoodputEvent{.kind = kind->first,
                      .time = *time,
                      .step = std::max<std::int64_t>(0, step_at(row)),
                      .seconds = number_at(row, "seconds").value_or(0),
                      .began = number_at(row, "began").value_or(*time),
                      .step_time = number_at(row, "step_time").value_or(0),
                      .life = static_cast<int>(number_at(row, "life").value_or(0))};
}

}  // namespace

std::string to_json(const GoodputEvent& event) {
  nlohmann::ordered_json out;
  out["event"] = name_of(event.kind);
  out["time"] = event.time;
  out["step"] = event.step;
  if (event.kind == Kind::save || event.kind == Kind::evaluation || event.kind == Kind::end)
    out["seconds"] = event.seconds;
  if (event.kind == Kind::start || event.kind == Kind::failure) {
    out["began"] = event.began;
    out["step_time"] = event.step_time;
  }
  if (event.kind == Kind::start) out["life"] = event.life;
  return out.dump();
}

std::vector<GoodputEvent> parse_goodput_events(std::string_view text) {
  std::vector<GoodputEvent> events;
  for (const std::string& line : lines_of(text))
    if (const auto event = event_of(io::parse_or_discard(line))) events.push_back(*event);
  return events;
}

std::vector<std::pair<std::string, double>> named_parts(const Goodput& goodput) {
  std::vector<std::pair<std::string, double>> list{{"new steps", goodput.new_steps}};
  const std::string repeated = fmt::format("{} repeated step{}", goodput.repeated, goodput.repeated == 1 ? "" : "s");
  for (const auto& [name, seconds] : {std::pair<std::string, double>{"detection of failures", goodput.detection},
                                      {"start", goodput.start},
                                      {"load", goodput.load},
                                      {repeated, goodput.repeated_steps},
                                      {"saves", goodput.saves},
                                      {"evaluations", goodput.evaluations},
                                      {"other", goodput.other}})
    if (seconds >= least_shown_seconds || (name == repeated && goodput.repeated > 0)) list.emplace_back(name, seconds);
  return list;
}

std::string to_text(const Goodput& goodput) {
  std::vector<std::string> parts;
  for (const auto& [name, seconds] : named_parts(goodput))
    if (name != "new steps") parts.push_back(name + " " + duration_text(seconds));
  return fmt::format("{:.1f}% of {}{}{}{}", 100 * goodput.share(), duration_text(goodput.total()),
                     goodput.attempts > 1 ? fmt::format(" in {} attempts", goodput.attempts) : "",
                     parts.empty() ? "" : ": ", join(parts, ", "));
}

/// Adds the time until then to a part.
void GoodputClock::spend(double& part, double until) {
  if (phase_ == Phase::none) now_ = until;
  part += std::max(0.0, until - now_);
  now_ = std::max(now_, until);
}

/// Between two events that enclose the last repeated step, time is divided by steps.
void GoodputClock::step_until(double time, std::int64_t step) {
  const std::int64_t done = std::max<std::int64_t>(0, step - step_);
  const std::int64_t repeated = std::clamp<std::int64_t>(furthest_ - step_, 0, done);
  const double share = done > 0 ? static_cast<double>(repeated) / static_cast<double>(done) : step_ < furthest_ ? 1 : 0;
  const double seconds = std::max(0.0, time - now_);
  parts_.repeated_steps += share * seconds;
  parts_.new_steps += (1 - share) * seconds;
  parts_.repeated += repeated;
  now_ = std::max(now_, time);
  step_ += done;
  furthest_ = std::max(furthest_, step_);
}

/// A row before the last event is one of an attempt before.
void GoodputClock::step_until_row(const GoodputEvent& event) {
  if (event.step_time > now_) step_until(event.step_time, event.step);
}

void GoodputClock::add_start(const GoodputEvent& event) {
  if (phase_ == Phase::stepping) {  // the attempt before ended without an event
    step_until_row(event);
    ++parts_.failures;
  }
  if (phase_ == Phase::none) now_ = event.began;
  if (phase_ != Phase::restarting || event.life == 0) spend(parts_.between_jobs, event.began);
  phase_ = Phase::loading;
  spend(parts_.start, event.time);
  furthest_ = std::max(furthest_, event.step);
  ++parts_.attempts;
}

void GoodputClock::add_failure(const GoodputEvent& event) {
  ++parts_.failures;
  if (phase_ == Phase::none) {
    now_ = event.began;
    phase_ = Phase::restarting;
  }
  if (phase_ == Phase::stepping) step_until_row(event);
  spend(phase_ == Phase::restarting ? parts_.start : parts_.detection, event.time);
  phase_ = Phase::restarting;
}

void GoodputClock::add(const GoodputEvent& event) {
  switch (event.kind) {
    case Kind::start: return add_start(event);
    case Kind::failure: return add_failure(event);
    case Kind::restart:
      spend(parts_.start, event.time);
      phase_ = Phase::restarting;
      return;
    case Kind::load:
      spend(parts_.load, event.time);
      phase_ = Phase::stepping;
      step_ = event.step;
      furthest_ = std::max(furthest_, event.step);
      return;
    case Kind::caught_up: return step_until(event.time, event.step);
    case Kind::save:
    case Kind::evaluation:
      step_until(event.time - event.seconds, event.step);
      return spend(event.kind == Kind::save ? parts_.saves : parts_.evaluations, event.time);
    case Kind::end:
      if (phase_ == Phase::stepping) step_until(event.time - event.seconds, event.step);
      spend(parts_.other, event.time);
      phase_ = Phase::ended;
      return;
  }
}

Goodput GoodputClock::at(double time, std::int64_t step) const {
  GoodputClock then = *this;
  if (then.steps() && time > now_) then.step_until(time, step);
  return then.parts_;
}

LastStep last_step(const std::string& metrics) try {
  if (io::status_of(metrics).kind != io::PathKind::file) return {};
  const io::File file = io::File::open(metrics);
  // From the end, in growing pieces: a row can be long.
  for (std::int64_t tail = std::int64_t{1} << 16;; tail *= 8) {
    const std::int64_t begin = std::max<std::int64_t>(0, file.size() - tail);
    std::string text(static_cast<std::size_t>(file.size() - begin), '\0');
    file.read_at(begin, std::as_writable_bytes(std::span(text)));
    std::vector<std::string> lines = lines_of(text);
    if (begin > 0 && !lines.empty()) lines.erase(lines.begin());  // may begin within a row
    for (const std::string& line : std::views::reverse(lines)) {
      const nlohmann::json row = io::parse_or_discard(line);
      if (!row.is_object()) continue;
      const std::optional<double> time = number_at(row, "time");
      if (step_at(row) >= 0 && time) return {.step = step_at(row), .time = *time};
    }
    if (begin == 0) return {};
  }
} catch (const Error&) {
  return {};
}

std::string goodput_file(const std::string& output) { return output + "/goodput.jsonl"; }

void append_goodput_event(const std::string& output, const GoodputEvent& event) {
  const std::string path = goodput_file(output);
  const io::Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666));
  char last = '\n';  // a kill may have cut off the last line
  if (const off_t size = ::lseek(file.get(), 0, SEEK_END); size > 0) (void)!::pread(file.get(), &last, 1, size - 1);
  const std::string line = (last == '\n' ? "" : "\n") + to_json(event) + "\n";
  if (::write(file.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    throw WriteError(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
}

std::optional<Goodput> read_goodput(const std::string& directory) {
  const std::string path = goodput_file(directory);
  if (io::status_of(path).kind != io::PathKind::file) return std::nullopt;
  GoodputClock clock;
  for (const GoodputEvent& event : parse_goodput_events(io::read_text(path, most_event_bytes))) clock.add(event);
  if (clock.parts().attempts == 0) return std::nullopt;
  const LastStep last = last_step(directory + "/metrics.jsonl");
  return clock.at(last.time, last.step);
}

}  // namespace trireme::report
