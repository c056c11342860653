// SPDX-License-Identifier: Apache-2.0
#include "train/record/event_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/protobuf.hpp"
#include "trireme/base/crc32.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/entries.hpp"
#include "trireme/base/io/handled_files.hpp"
#include "trireme/base/unix_time.hpp"
#include "trireme/mpi/topology.hpp"

namespace trireme::train {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view name_begin = "events.out.tfevents.";

using protobuf::put;
using protobuf::put_bytes;
using protobuf::put_key;
using protobuf::put_number;
using protobuf::Wire;

// The fields of event.proto and summary.proto.

std::string timed(double wall_time) {
  std::string event;
  put_key(event, 1, Wire::fixed64);
  put(event, std::bit_cast<std::uint64_t>(wall_time));
  return event;
}

std::string version_event(double wall_time) {
  std::string event = timed(wall_time);
  put_bytes(event, 3, "brain.Event:2");
  return event;
}

/// The run resumes with `step`: readers drop the same and later steps of earlier files.
std::string start_event(double wall_time, std::int64_t step) {
  constexpr std::int64_t start = 1;
  std::string session_log;
  put_number(session_log, 1, start);
  std::string event = timed(wall_time);
  put_number(event, 2, step);
  put_bytes(event, 7, session_log);
  return event;
}

std::string scalars_event(double wall_time, std::int64_t step, std::span<const Scalar> scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    put_bytes(value, 1, scalar.tag);
    put_key(value, 2, Wire::fixed32);
    put(value, std::bit_cast<std::uint32_t>(static_cast<float>(scalar.value)));
    put_bytes(summary, 1, value);
  }
  std::string event = timed(wall_time);
  put_number(event, 2, step);
  put_bytes(event, 5, summary);
  return event;
}

/// A checksum of bytes that may hold such checksums themselves.
std::uint32_t masked_crc(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xa282ead8; }

std::string record(std::string_view event) {
  std::string out;
  put<std::uint64_t>(out, event.size());
  put(out, masked_crc(out));
  out += event;
  put(out, masked_crc(event));
  return out;
}

std::vector<fs::path> event_files(const std::string& directory) {
  std::error_code error;
  std::vector<fs::path> found = io::entries_of(directory, error);
  if (error) throw WriteError(fmt::format("{}: cannot be read: {}; check its permissions", directory, error.message()));
  std::erase_if(found, [](const fs::path& path) { return !path.filename().string().starts_with(name_begin); });
  return found;
}

void make_directory(const std::string& directory) {
  std::error_code error;
  io::create_directories(directory, error);
  if (error)
    throw WriteError(fmt::format(
        "{}: cannot be created: {}. Is run.output a directory that you may write to? metrics.tensorboard writes there.",
        directory, error.message()));
}

/// The seconds in an event file's name, which its readers sort by; 0: there are none.
std::int64_t seconds_of(const fs::path& path) {
  const std::string name = path.filename().string();
  std::uint32_t seconds = 0;
  std::from_chars(name.data() + name_begin.size(), name.data() + name.size(), seconds);
  return seconds;
}

void remove_file(const fs::path& path) {
  std::error_code error;
  io::remove_file(path, error);
  if (error) throw WriteError(fmt::format("{}: cannot be removed: {}", path.string(), error.message()));
}

/// The path of a file that begins now, as TensorBoard names them: events.out.tfevents.SECONDS.HOST.PROCESS.NUMBER.
std::string next_path(const std::string& directory, std::int64_t keep_steps) {
  make_directory(directory);
  auto seconds = static_cast<std::int64_t>(unix_seconds());
  for (const fs::path& earlier : event_files(directory)) {
    if (keep_steps == 0)
      remove_file(earlier);
    else
      seconds = std::max(seconds, seconds_of(earlier) + 1);
  }
  return fmt::format("{}/{}{:010}.{}.{}.0", directory, name_begin, seconds, mpi::hostname(), ::getpid());
}

}  // namespace

std::string event_record(double wall_time, std::int64_t step, std::span<const Scalar> scalars) {
  return record(scalars_event(wall_time, step, scalars));
}

EventFile::EventFile(const std::string& directory, std::int64_t keep_steps)
    : file_(next_path(directory, keep_steps), LogFile::Begin::empty, "events") {
  const double now = unix_seconds();
  // The first file has one, too: TensorBoard takes the first START that it meets for the beginning.
  file_.append(record(version_event(now)) + record(start_event(now, keep_steps + 1)));
}

void EventFile::append(std::int64_t step, std::span<const Scalar> scalars) {
  file_.append(event_record(unix_seconds(), step, scalars));
}

}  // namespace trireme::train
