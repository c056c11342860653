// SPDX-License-Identifier: Apache-2.0
#include "trireme/mpi/flight.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

#include "trireme/mpi/topology.hpp"

namespace trireme::mpi {
namespace {

double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      out += c;
  }
  return out + '"';
}

thread_local std::string task_of_thread;

}  // namespace

void doing(std::string task) { task_of_thread = std::move(task); }

std::string task_of_this_thread() { return task_of_thread; }

std::string to_text(const Operation& operation) {
  return fmt::format("{} #{} ({}) on {}{}", operation.name, operation.sequence, to_text(operation.bytes),
                     operation.lane, operation.task.empty() ? "" : fmt::format(" for \"{}\"", operation.task));
}

Operation FlightLane::begin(const char* operation, Bytes bytes) {
  const std::scoped_lock lock(mutex_);
  Operation& slot = ring_[sequence_ % ring_.size()];
  slot = {.lane = name_,
          .name = operation,
          .sequence = ++sequence_,
          .bytes = bytes,
          .task = task_of_thread,
          .started = Clock::now(),
          .finished = {}};
  return slot;
}

void FlightLane::finish() {
  const std::scoped_lock lock(mutex_);
  if (sequence_ > 0) ring_[(sequence_ - 1) % ring_.size()].finished = Clock::now();
}

void FlightLane::finish(std::uint64_t sequence) {
  const std::scoped_lock lock(mutex_);
  Operation& slot = ring_[(sequence - 1) % ring_.size()];
  if (slot.sequence == sequence) slot.finished = Clock::now();
}

std::vector<Operation> FlightLane::operations() const {
  const std::scoped_lock lock(mutex_);
  std::vector<Operation> kept;
  const std::uint64_t first = sequence_ > ring_.size() ? sequence_ - ring_.size() : 0;
  for (std::uint64_t i = first; i < sequence_; ++i) kept.push_back(ring_[i % ring_.size()]);
  return kept;
}

FlightLane& FlightRecorder::add_lane(const std::string& name) {
  const std::scoped_lock lock(mutex_);
  return *lanes_.emplace_back(std::make_unique<FlightLane>(name, keep_));
}

std::vector<Operation> FlightRecorder::in_flight() const {
  const std::scoped_lock lock(mutex_);
  std::vector<Operation> running;
  for (const auto& lane : lanes_) {
    // On a GPU several may be in progress: the oldest blocks the others.
    for (Operation& operation : lane->operations()) {
      if (operation.finished) continue;
      running.push_back(std::move(operation));
      break;
    }
  }
  return running;
}

bool FlightRecorder::dump(const std::string& path, const std::string& reason) const {
  const Clock::time_point now = Clock::now();
  std::error_code error;  // a link is not followed, a FIFO not waited for
  if (!std::filesystem::is_regular_file(std::filesystem::symlink_status(path, error)))
    std::filesystem::remove(path, error);
  std::ofstream file(path);
  file << fmt::format("{{\"reason\": {},\n \"node\": {},\n \"operations\": [", json_string(reason),
                      json_string(hostname()));
  const std::scoped_lock lock(mutex_);
  const char* separator = "\n";
  for (const auto& lane : lanes_) {
    for (const Operation& o : lane->operations()) {
      file << separator
           << fmt::format(
                  "  {{\"lane\": {}, \"operation\": {}, \"sequence\": {}, \"bytes\": {}, \"task\": {}, "
                  "\"started_seconds_ago\": {:.6f}, \"finished_seconds_ago\": {}}}",
                  json_string(o.lane), json_string(o.name), o.sequence, o.bytes.value, json_string(o.task),
                  seconds(now - o.started), o.finished ? fmt::format("{:.6f}", seconds(now - *o.finished)) : "null");
      separator = ",\n";
    }
  }
  file << "\n]}\n";
  return static_cast<bool>(file.flush());
}

}  // namespace trireme::mpi
