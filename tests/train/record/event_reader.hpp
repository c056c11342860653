// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace trireme::train {

/// Contents of a TensorBoard event.
struct ReadEvent {
  double wall_time = 0;
  std::int64_t step = 0;
  std::string file_version;
  bool start = false;  ///< SessionLog.START
  std::map<std::string, float> scalars;
};

/// Reads a protobuf message field by field; shares nothing with the writer.
class ReadMessage {
 public:
  explicit ReadMessage(const std::string& message) : message_(message) {}
  /// False at the end. A varint's value is in `number`, that of all others in `bytes`.
  bool next() {
    if (at_ == message_.size()) return false;
    const std::uint64_t key = varint();
    field = static_cast<int>(key >> 3);
    switch (key & 7) {
      case 0: number = varint(); break;
      case 1: bytes = take(8); break;
      case 2: bytes = take(varint()); break;
      case 5: bytes = take(4); break;
      default: throw std::runtime_error("no such wire type");
    }
    return true;
  }
  template <class T>
  [[nodiscard]] T as() const {
    if (bytes.size() != sizeof(T)) throw std::runtime_error("another width");
    T value{};
    std::memcpy(&value, bytes.data(), sizeof value);  // on a machine that has the lowest byte first
    return value;
  }
  int field = 0;
  std::uint64_t number = 0;
  std::string bytes;

 private:
  std::string take(std::uint64_t size) {
    if (size > message_.size() - at_) throw std::runtime_error("a field ends after its message");
    at_ += size;
    return message_.substr(at_ - size, size);
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= std::uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80) return value;
    }
    throw std::runtime_error("a varint without an end");
  }
  std::string message_;
  std::size_t at_ = 0;
};

inline ReadEvent read_event(const std::string& bytes) {
  ReadEvent event;
  for (ReadMessage message(bytes); message.next();) {
    if (message.field == 1) event.wall_time = message.as<double>();
    if (message.field == 2) event.step = static_cast<std::int64_t>(message.number);
    if (message.field == 3) event.file_version = message.bytes;
    if (message.field == 7)
      for (ReadMessage log(message.bytes); log.next();) event.start = log.field == 1 && log.number == 1;
    if (message.field != 5) continue;
    for (ReadMessage summary(message.bytes); summary.next();) {
      std::string tag;
      for (ReadMessage value(summary.bytes); value.next();) {
        if (value.field == 1) tag = value.bytes;
        if (value.field == 2 && !event.scalars.emplace(tag, value.as<float>()).second)
          throw std::runtime_error(tag + " stands twice in an event");
      }
    }
  }
  return event;
}

/// CRC-32C a bit at a time, masked as TFRecords have it.
inline std::uint32_t read_checksum(const std::string& bytes) {
  std::uint32_t rest = 0xffffffff;
  for (const char byte : bytes) {
    rest ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) * 0x82f63b78);
  }
  rest = ~rest;
  return ((rest >> 15) | (rest << 17)) + 0xa282ead8;
}

/// The whole records at the beginning of `bytes`; a cut one ends them, a wrong checksum throws.
inline std::vector<ReadEvent> read_events(const std::string& bytes) {
  std::vector<ReadEvent> events;
  std::size_t at = 0;
  const auto number = [&](std::size_t from, auto value) {
    std::memcpy(&value, bytes.data() + from, sizeof value);
    return value;
  };
  while (bytes.size() - at >= 12) {
    const auto size = number(at, std::uint64_t{});
    if (number(at + 8, std::uint32_t{}) != read_checksum(bytes.substr(at, 8)))
      throw std::runtime_error("the length's checksum is wrong");
    if (bytes.size() - at < 12 + size + 4) break;
    const std::string event = bytes.substr(at + 12, size);
    if (number(at + 12 + size, std::uint32_t{}) != read_checksum(event))
      throw std::runtime_error("the event's checksum is wrong");
    events.push_back(read_event(event));
    at += 12 + size + 4;
  }
  return events;
}

inline std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::vector<std::filesystem::path> sorted_files(const std::string& directory) {
  std::set<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) paths.insert(entry.path());
  return {paths.begin(), paths.end()};
}

/// A curve as its points in the order of reading, steps with values.
using ReadCurve = std::vector<std::pair<std::int64_t, float>>;

/// All curves of a directory, as TensorBoard joins its files: by name, and the second START and all later ones drop
/// what was read of their step and of later ones (plugin_event_accumulator.py).
inline std::map<std::string, ReadCurve> read_curves(const std::string& directory) {
  std::map<std::string, ReadCurve> curves;
  bool started = false;
  for (const std::filesystem::path& path : sorted_files(directory))
    for (const ReadEvent& event : read_events(bytes_of(path))) {
      if (event.start && started)
        for (auto& [tag, curve] : curves)
          std::erase_if(curve, [&](const auto& point) { return point.first >= event.step; });
      started = started || event.start;
      for (const auto& [tag, value] : event.scalars) curves[tag].emplace_back(event.step, value);
    }
  return curves;
}

}  // namespace trireme::train
