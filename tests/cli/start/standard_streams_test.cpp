// SPDX-License-Identifier: Apache-2.0
#include "cli/start/standard_streams.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace trireme::cli {
namespace {

/// Exit code of a child process that closes `streams` and then runs `body`.
int in_child(std::initializer_list<int> streams, const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (const int stream : streams) ::close(stream);
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int next_descriptor() { return ::open("/dev/null", O_RDONLY); }

TEST(OpenStandardStreams, KeepsTheirNumbersFromOtherFiles) {
  EXPECT_EQ(in_child({0, 1, 2}, next_descriptor), 0) << "without it";
  EXPECT_GT(in_child({0, 1, 2}, [] { return open_standard_streams(), next_descriptor(); }), 2);
  EXPECT_GT(in_child({1}, [] { return open_standard_streams(), next_descriptor(); }), 2);
}

TEST(OpenStandardStreams, LeavesOpenOnesAlone) {
  EXPECT_EQ(in_child({},
                     [] {
                       const int before = next_descriptor();
                       ::close(before);
                       open_standard_streams();
                       return next_descriptor() == before ? 0 : 1;
                     }),
            0);
}

TEST(OutliveReaders, TurnsALostReaderIntoAnError) {
  const auto write_to_nobody = [] {
    int ends[2];
    if (::pipe(ends) != 0) return 2;
    ::close(ends[0]);
    return ::write(ends[1], "x", 1) < 0 ? 0 : 1;
  };
  EXPECT_EQ(in_child({}, write_to_nobody), -1) << "a signal, without it";
  EXPECT_EQ(in_child({}, [&] { return ignore_closed_output(), write_to_nobody(); }), 0);
}

}  // namespace
}  // namespace trireme::cli
