// SPDX-License-Identifier: Apache-2.0
#include "cli/start/standard_streams.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "trireme/base/error.hpp"

namespace trireme::cli {

void open_standard_streams() {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
    (void)::open("/dev/null", O_RDWR);  // the lowest free number: this one
  }
}

void ignore_closed_output() { (void)std::signal(SIGPIPE, SIG_IGN); }

void fail_writes_with_errors() { (void)std::signal(SIGXFSZ, SIG_IGN); }

void flush_standard_output() {
  if (std::fflush(stdout) != 0)
    throw WriteError(fmt::format("Standard output could not be written: {}. Is the disk full?", std::strerror(errno)));
}

}  // namespace trireme::cli
