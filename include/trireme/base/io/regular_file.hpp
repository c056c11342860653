// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/base/io/descriptor.hpp"

namespace trireme::io {

/// Remedy for ENAMETOOLONG.
inline constexpr std::string_view remedy_of_long_name = "give it a shorter name (255 bytes at most, a path 4095)";

/// A regular file that was opened for reading, or why none was.
struct RegularFile {
  Descriptor descriptor{};
  std::int64_t bytes = 0;  ///< its size
  int error = 0;           ///< errno of the failed call; 0 if it was opened or is not a regular file
  std::string kind;        ///< "a FIFO", "a directory", ...: its kind if not regular; empty if the system refused

  [[nodiscard]] bool opened() const noexcept { return descriptor.get() >= 0; }
  /// Why it was not opened: "No such file or directory", "it is a FIFO, not a regular file".
  [[nodiscard]] std::string problem() const;
};

/// Opens `path` for reading; symbolic links are followed. Never waits for a writer, as opening a FIFO does, and never
/// touches a device.
[[nodiscard]] RegularFile open_regular_file(const std::string& path);

}  // namespace trireme::io
