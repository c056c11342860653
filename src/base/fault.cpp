// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/fault.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/base/text.hpp"

namespace trireme::fault {

namespace {

constexpr std::chrono::milliseconds slowness{50};  // longer than a step of a tiny model

std::atomic<int> current_rank{-1};
std::atomic<long> current_step{-1};
thread_local std::optional<long> step_of_thread;

/// One entry of TRIREME_FAULT.
struct Fault {
  std::string_view point;
  std::string_view action;
  std::optional<long> rank;
  std::optional<long> step;
};

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0;;) {
    const std::size_t end = text.find(separator, begin);
    parts.push_back(trim(text.substr(begin, end - begin)));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

[[noreturn]] void refuse(std::string_view entry, std::string_view why) {
  throw ConfigError(fmt::format(
      "TRIREME_FAULT: \"{}\": {}; expected point:action[:rank[:step]] with action kill, stop, slow, throw, exit, "
      "usr1 or nan; unset the variable for a real run",
      entry, why));
}

/// The number an entry is aimed at; nothing for `*` or an empty field.
std::optional<long> aim(std::string_view entry, std::string_view field) {
  if (field.empty() || field == "*") return std::nullopt;
  long number = 0;
  const auto [end, problem] = std::from_chars(field.data(), field.data() + field.size(), number);
  if (problem != std::errc{} || end != field.data() + field.size())
    refuse(entry, fmt::format("\"{}\" is not a number", field));
  return number;
}

Fault parse(std::string_view entry) {
  const auto fields = split(entry, ':');
  if (fields.size() < 2 || fields.size() > 4) refuse(entry, "it has too few or too many fields");
  if (fields[0].empty()) refuse(entry, "the point is empty");
  const std::string_view action = fields[1];
  const bool known = action == "kill" || action == "stop" || action == "slow" || action == "throw" ||
                     action == "exit" || action == "nan" || action == "usr1";
  if (!known) refuse(entry, fmt::format("unknown action \"{}\"", action));
  return {.point = fields[0],
          .action = action,
          .rank = fields.size() > 2 ? aim(entry, fields[2]) : std::nullopt,
          .step = fields.size() > 3 ? aim(entry, fields[3]) : std::nullopt};
}

bool applies(const Fault& fault, std::string_view point) {
  const int rank = current_rank;
  const bool here = rank == -1 || !fault.rank || *fault.rank == rank;
  const bool now = !fault.step || *fault.step == step_of_thread.value_or(current_step);
  return here && now && (fault.point == "*" || fault.point == point);
}

/// Executes the action; returns true for a value fault.
bool act(std::string_view action, std::string_view point) {
  if (action == "kill") std::raise(SIGKILL);
  if (action == "stop") std::raise(SIGSTOP);
  if (action == "slow") std::this_thread::sleep_for(slowness);
  if (action == "usr1") ::kill(::getpid(), SIGUSR1);
  if (action == "exit") _exit(1);
  if (action == "throw") throw BugError(fmt::format("fault injected at {} by TRIREME_FAULT", point));
  return action == "nan";
}

/// The fault to inject, or nullptr. The environment is read once: libraries may write to it later, concurrently with a
/// thread that reads it. A text stays where it is, because a thread may be looking at it when another one is armed.
std::atomic<const std::string*>& current() {
  static std::atomic<const std::string*> only{[]() -> const std::string* {
    const char* text = std::getenv("TRIREME_FAULT");
    return text == nullptr || *text == '\0' ? nullptr : new std::string(text);
  }()};
  return only;
}

}  // namespace

void arm(std::string text) { current() = text.empty() ? nullptr : new std::string(std::move(text)); }

void set_rank(int rank) { current_rank = rank; }

void set_step(long step) { current_step = step; }

void set_step_of_thread(long step) { step_of_thread = step; }

bool point(std::string_view name) {
  const std::string* text = current();
  if (text == nullptr) return false;
  std::vector<Fault> faults;
  for (const std::string_view entry : split(*text, ',')) faults.push_back(parse(entry));
  bool value_fault = false;
  for (const Fault& fault : faults)
    if (applies(fault, name)) value_fault = act(fault.action, name) || value_fault;
  return value_fault;
}

bool armed() { return current() != nullptr; }

}  // namespace trireme::fault
