// SPDX-License-Identifier: Apache-2.0
#include "cli/start/log.hpp"

#include <fmt/format.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string_view>

#include "trireme/base/error.hpp"
#include "trireme/base/log.hpp"
#include "trireme/base/standard_error.hpp"

namespace trireme::cli {
namespace {

spdlog::level::level_enum spdlog_level(log::Level level) {
  switch (level) {
    case log::Level::debug: return spdlog::level::debug;
    case log::Level::info: return spdlog::level::info;
    case log::Level::warning: return spdlog::level::warn;
    case log::Level::error: return spdlog::level::err;
  }
  throw BugError("unknown log level");
}

/// A long run continues whether or not its messages are read.
class StandardError : public spdlog::sinks::base_sink<std::mutex> {
 public:
  /// clears_line: erases another line, such as the progress, where a message begins.
  explicit StandardError(bool clears_line) : prefix_(clears_line ? "\r\033[K" : "") {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    write_to_standard_error(std::string_view(line.data(), line.size()), prefix_);
  }
  void flush_() override {}

  std::string_view prefix_;
};

log::Level parse_level(std::string_view word) {
  if (word == "debug") return log::Level::debug;
  if (word.empty() || word == "info") return log::Level::info;
  if (word == "warning") return log::Level::warning;
  if (word == "error") return log::Level::error;
  throw ConfigError(fmt::format("TRIREME_LOG is \"{}\"; it takes debug, info, warning or error.", word));
}

}  // namespace

void install_log(const Logger& logger, std::string_view level) {
  log::Level least = parse_level(level);
  if (logger.rank != 0) least = std::max(least, log::Level::warning);
  const std::string who = logger.rank == 0 ? "" : fmt::format(" [rank {} {}]", logger.rank, logger.host);

  auto spd = std::make_shared<spdlog::logger>("trireme", std::make_shared<StandardError>(logger.clears_line));
  spd->set_formatter(std::make_unique<spdlog::pattern_formatter>("%Y-%m-%dT%H:%M:%S.%eZ %l" + who + " %v",
                                                                 spdlog::pattern_time_type::utc));
  spd->set_level(spdlog_level(least));
  spd->set_error_handler([](const std::string&) {});  // standard error is closed
  log::set_sink([spd](log::Level at, std::string_view line) { spd->log(spdlog_level(at), "{}", line); });
}

}  // namespace trireme::cli
