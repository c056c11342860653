// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/log.hpp"

#include <mutex>
#include <utility>

#include "trireme/base/standard_error.hpp"
#include "trireme/base/text.hpp"

namespace trireme::log {

namespace {

void to_standard_error(Level level, std::string_view line) {
  if (level < Level::warning) return;
  std::string whole = level == Level::warning ? "warning: " : "error: ";
  whole += line;
  whole += '\n';
  write_to_standard_error(whole);
}

struct Installed {
  std::mutex mutex;
  Sink sink = to_standard_error;
};

Installed& installed() {
  static Installed state;
  return state;
}

void write(Level level, std::string_view line) {
  Installed& state = installed();
  const std::lock_guard lock(state.mutex);
  state.sink(level, printable_lines(line));  // it may quote a file
}

}  // namespace

Sink set_sink(Sink sink) {
  Installed& state = installed();
  const std::lock_guard lock(state.mutex);
  return std::exchange(state.sink, sink ? std::move(sink) : Sink(to_standard_error));
}

void debug(std::string_view line) { write(Level::debug, line); }
void info(std::string_view line) { write(Level::info, line); }
void warning(std::string_view line) { write(Level::warning, line); }
void error(std::string_view line) { write(Level::error, line); }

}  // namespace trireme::log
