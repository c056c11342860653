// SPDX-License-Identifier: Apache-2.0
#include "comm/node/dead_segments.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <system_error>

#include "trireme/base/log.hpp"
#include "trireme/base/process.hpp"

namespace trireme::comm {
namespace {

namespace fs = std::filesystem;

/// The process in a segment's name; 0 for any other name.
pid_t creator_in(const std::string& name) {
  if (!name.starts_with(segment_prefix)) return 0;
  pid_t pid = 0;
  const char* end = name.data() + name.size();
  const auto [stop, problem] = std::from_chars(name.data() + segment_prefix.size(), end, pid);
  return problem == std::errc{} && stop != end && *stop == '-' ? pid : 0;
}

/// A process of another container may have no number here, but it has the lock.
bool locked(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return true;  // another user's
  const bool taken = ::flock(descriptor, LOCK_EX | LOCK_NB) != 0;
  ::close(descriptor);
  return taken;
}

}  // namespace

void remove_dead_segments(const std::string& directory) {
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string path = it->path().string();
    const pid_t creator = creator_in(it->path().filename().string());
    if (creator <= 0 || !process_has_ended(creator) || locked(path)) continue;
    if (::unlink(path.c_str()) == 0)
      log::info(fmt::format("{}: removed, its job was killed while it made the segment", path));
  }
}

}  // namespace trireme::comm
