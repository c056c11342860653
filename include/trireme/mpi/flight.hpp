// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/units.hpp"

namespace trireme::mpi {

using Clock = std::chrono::steady_clock;

/// One collective as the flight recorder keeps it.
struct Operation {
  std::string lane;            ///< "shard/gather"
  const char* name = "";       ///< "all_gather"
  std::uint64_t sequence = 0;  ///< counts this lane's operations from 1; the rank with the lowest one is the one behind
  Bytes bytes;
  std::string task;  ///< purpose: `doing`
  Clock::time_point started{};
  std::optional<Clock::time_point> finished;
};

/// Sets the activity of this thread, "unshard b3 of step 5", which is recorded with operations that it begins.
void doing(std::string task);
/// The last activity; "" before.
[[nodiscard]] std::string task_of_this_thread();

/// "reduce_scatter #17 (12.0 MiB) on shard/reduce", with the purpose if known.
[[nodiscard]] std::string to_text(const Operation& operation);

/// The last operations of one lane. Written by the lane's thread, read by any.
class FlightLane {
 public:
  FlightLane(std::string name, std::size_t keep) : name_(std::move(name)), ring_(keep) {}
  /// Notes that an operation begins; a copy of the record.
  Operation begin(const char* operation, Bytes bytes);
  /// Notes that the operation begun last is done.
  void finish();
  /// Notes that operation `sequence` is done; nothing if newer ones have taken its place.
  void finish(std::uint64_t sequence);
  /// Oldest first.
  [[nodiscard]] std::vector<Operation> operations() const;

 private:
  mutable std::mutex mutex_;
  std::string name_;
  std::vector<Operation> ring_;
  std::uint64_t sequence_ = 0;
};

/// Last and current operation of every lane of this rank, to compare over the ranks after a hang.
class FlightRecorder {
 public:
  explicit FlightRecorder(std::size_t keep_per_lane = 64) : keep_(keep_per_lane) {}
  /// A new lane; lives as long as the recorder. Any thread may call it.
  FlightLane& add_lane(const std::string& name);
  [[nodiscard]] std::vector<Operation> in_flight() const;
  /// Writes all operations of all lanes as JSON, ages in seconds. False when the file cannot be written.
  bool dump(const std::string& path, const std::string& reason) const;

 private:
  mutable std::mutex mutex_;
  std::size_t keep_;
  std::vector<std::unique_ptr<FlightLane>> lanes_;
};

}  // namespace trireme::mpi
