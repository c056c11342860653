// SPDX-License-Identifier: Apache-2.0
#include "train/record/goodput_record.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/base/log.hpp"
#include "trireme/base/process.hpp"
#include "trireme/base/unix_time.hpp"
#include "trireme/supervise/directory_lock.hpp"

namespace trireme::train {
namespace {

using EventKind = report::GoodputEvent::Kind;

constexpr std::int64_t most_record_bytes = std::int64_t{1} << 30;

/// Starts before by the same supervisor.
int life_number() {
  const char* const text = std::getenv("TRIREME_LIFE");
  return text == nullptr ? 0 : static_cast<int>(supervise::life_of(text).number);
}

/// Whether earlier attempts of this run are in the directory: it resumed from a checkpoint, or begins again as none was
/// saved.
bool continues(const config::RunConfig& config, std::int64_t loaded) {
  const char* const restarts = std::getenv("SLURM_RESTART_COUNT");
  return loaded > 0 || !config.run.overwrite || life_number() > 0 || (restarts != nullptr && std::atoi(restarts) > 0);
}

std::string earlier_events(const std::string& path) try {
  return io::status_of(path).kind == io::PathKind::file ? io::read_text(path, most_record_bytes) : "";
} catch (const Error& error) {
  log::warning(fmt::format("{}: cannot be read, so goodput counts from this start on: {}", path, error.what()));
  return "";
}

}  // namespace

GoodputRecord::GoodputRecord(const config::RunConfig& config, double load_began, std::int64_t loaded,
                             report::LastStep before)
    : file_(report::goodput_file(config.run.output),
            continues(config, loaded) ? LogFile::Begin::append : LogFile::Begin::empty, "events"),
      step_(loaded),
      last_activity_(unix_seconds()) {
  if (continues(config, loaded)) {
    const std::string text = earlier_events(file_.path());
    cut_off_ = !text.empty() && text.back() != '\n';
    for (const report::GoodputEvent& event : report::parse_goodput_events(text)) clock_.add(event);
  } else {
    before = {};
  }
  append({.kind = EventKind::start,
          .time = load_began,
          .step = before.step,
          .began = unix_seconds() - process_age_seconds(),
          .step_time = before.time,
          .life = life_number()});
  repeats_until_ = clock_.furthest();
  append({.kind = EventKind::load, .time = last_activity_, .step = loaded});
  if (clock_.parts().attempts > 1) log::info("goodput so far: " + report::to_text(clock_.parts()));
}

void GoodputRecord::append(const report::GoodputEvent& event) {
  clock_.add(event);
  file_.append((std::exchange(cut_off_, false) ? "\n" : "") + report::to_json(event) + '\n');
}

void GoodputRecord::took(EventKind kind, std::int64_t step, double seconds) {
  last_activity_ = unix_seconds();
  append({.kind = kind, .time = last_activity_, .step = step, .seconds = seconds});
}

void GoodputRecord::step_ended(std::int64_t step) {
  last_activity_ = unix_seconds();
  step_ = step;
  if (step == repeats_until_) append({.kind = EventKind::caught_up, .time = last_activity_, .step = step});
}

void GoodputRecord::end() {
  const double now = unix_seconds();
  append({.kind = EventKind::end, .time = now, .step = step_, .seconds = now - last_activity_});
}

report::Goodput GoodputRecord::now() const { return clock_.at(unix_seconds(), step_); }

}  // namespace trireme::train
