// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/standard_error.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <future>
#include <mutex>
#include <thread>

namespace trireme {
namespace {

constexpr std::chrono::milliseconds patience{2000};
/// Size of a write that does not block on a pipe that poll reports as ready.
constexpr std::size_t most_at_once = 4096;
/// Limit of the messages that are kept in memory before the file is known.
constexpr std::size_t most_kept_bytes = std::size_t{64} << 10;

/// Whether standard error can be written, or has an error that a write shows, within `wait`.
bool ready(std::chrono::milliseconds wait) {
  pollfd entry{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  int found = 0;
  do found = ::poll(&entry, 1, static_cast<int>(wait.count()));
  while (found < 0 && errno == EINTR);
  return found != 0;
}

/// Writes all of `text`; false if a part was not taken in time. An error, such as a closed descriptor, counts as
/// written: there is no reader.
bool write_all(std::string_view text, std::chrono::milliseconds wait) {
  while (!text.empty()) {
    if (!ready(wait)) return false;
    const ssize_t written = ::write(STDERR_FILENO, text.data(), std::min(text.size(), most_at_once));
    if (written < 0 && errno == EAGAIN) return false;
    if (written < 0 && errno != EINTR) return true;
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

struct Messages {
  std::mutex mutex;
  bool behind = false;  ///< the reader is assumed to be blocked
  std::int64_t dropped = 0;
  std::string so_far;  ///< before `keep_messages`
  bool kept = false;   ///< `keep_messages` was called
  bool only_dropped = false;
  std::string path;
  std::atomic<int> file = -1;

  void open() {
    if (file < 0) file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
  }
  void keep(std::string_view text, bool was_dropped) {
    if (!kept) {
      if (so_far.size() + text.size() <= most_kept_bytes) so_far += text;
      return;
    }
    if (only_dropped && !was_dropped) return;
    open();
    append(text);
  }
  void append(std::string_view text) const {
    while (file >= 0 && !text.empty()) {
      const ssize_t written = ::write(file, text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return;
      text.remove_prefix(static_cast<std::size_t>(written));
    }
  }
};

Messages& messages() {
  static auto* only = new Messages;  // threads log until the process is gone
  return *only;
}

}  // namespace

void write_to_standard_error(std::string_view text, std::string_view terminal_prefix) noexcept try {
  Messages& state = messages();
  const std::scoped_lock lock(state.mutex);
  if (state.behind && ready({})) {
    state.behind = false;
    state.behind = !write_all(fmt::format("({} message{} dropped: standard error was not read)\n", state.dropped,
                                          state.dropped == 1 ? "" : "s"),
                              {});
    if (!state.behind) state.dropped = 0;
  }
  const bool taken = !state.behind && write_all(std::string(terminal_prefix).append(text), patience);
  if (!taken) {
    state.behind = true;
    ++state.dropped;
  }
  state.keep(text, !taken);
} catch (...) {  // no memory for the copy
}

void write_last_message(std::string_view text) noexcept try {
  (void)write_all(text, patience);
  Messages& state = messages();
  if (state.file < 0) return;
  // The file system itself may hang.
  std::packaged_task<void()> task([&state, copy = std::string(text)] { state.append(copy); });
  std::future<void> end = task.get_future();
  std::thread(std::move(task)).detach();
  (void)end.wait_for(patience);
} catch (...) {  // no memory or no thread
}

void keep_messages(const std::string& path, bool only_dropped) {
  Messages& state = messages();
  const std::scoped_lock lock(state.mutex);
  if (const int before = state.file.exchange(-1); before >= 0) ::close(before);
  state.path = path;
  state.only_dropped = only_dropped;
  state.kept = true;
  if (only_dropped) return;
  state.open();
  state.append(state.so_far);
  state.so_far.clear();
}

}  // namespace trireme
