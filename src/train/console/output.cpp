// SPDX-License-Identifier: Apache-2.0
#include "train/console/output.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "trireme/base/log.hpp"

namespace trireme::train {
namespace {

// Bytes that a ready pipe (poll) accepts without blocking.
constexpr std::size_t most_at_once = 4096;

}  // namespace

bool Output::ready() {
  pollfd entry{.fd = descriptor_, .events = POLLOUT, .revents = 0};
  const int milliseconds = behind_ ? 0 : static_cast<int>(patience_ * 1000);
  int found = 0;
  do found = ::poll(&entry, 1, milliseconds);
  while (found < 0 && errno == EINTR);
  if (found != 0) return true;  // an error shows when writing
  if (!behind_)
    log::warning("standard output is not being read: dropping lines; training continues, metrics.jsonl is complete");
  behind_ = true;
  return false;
}

void Output::write_all(std::string_view text) {
  while (!text.empty()) {
    if (!ready()) {
      ++dropped_;
      return;
    }
    const ssize_t written = ::write(descriptor_, text.data(), std::min(text.size(), most_at_once));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      closed_ = true;
      log::warning(fmt::format("standard output cannot be written ({}): training continues, metrics.jsonl is complete",
                               std::strerror(errno)));
      return;
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void Output::put(std::string_view text) {
  if (closed_) return;
  if (behind_ && ready()) {
    behind_ = false;
    write_all(fmt::format("\n({} line{} dropped: standard output was not read)\n", dropped_, dropped_ == 1 ? "" : "s"));
    dropped_ = 0;
  }
  if (!closed_) write_all(text);
}

void Output::write(std::string_view text) {
  if (text.empty()) return;
  put(open_ ? fmt::format("\n{}", text) : std::string(text));
  open_ = false;
}

void Output::rewrite(std::string_view line) {
  put(fmt::format("\r\033[K{}", line));
  open_ = true;
}

void Output::finish_line() {
  if (open_) put("\n");
  open_ = false;
}

}  // namespace trireme::train
