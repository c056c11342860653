// SPDX-License-Identifier: Apache-2.0
#include "trireme/supervise/stop_signals.hpp"

#include <gtest/gtest.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

namespace {

std::atomic<bool> slow_reader = false;

}  // namespace

/// The C library's, for a thread that a busy machine stops when it has just read of a signal.
extern "C" ssize_t read(int file, void* bytes, std::size_t count) {
  const ssize_t got = ::syscall(SYS_read, file, bytes, count);
  if (slow_reader && got == sizeof(signalfd_siginfo)) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  return got;
}

namespace trireme::supervise {
namespace {

bool pending(int signal) {
  sigset_t waiting;
  sigpending(&waiting);
  return sigismember(&waiting, signal) == 1;
}

class StopSignal : public testing::TestWithParam<int> {};

// A handler that runs on the stack of a matrix product of libtorch's overwrites the heap.
TEST_P(StopSignal, WaitsUntilItIsAskedFor) {
  std::signal(GetParam(), SIG_DFL);  // whatever started the tests: nohup ignores SIGHUP
  const StopSignals signals;
  std::raise(GetParam());
  EXPECT_TRUE(pending(GetParam()));
  EXPECT_EQ(StopSignals::received(), GetParam());
  EXPECT_FALSE(pending(GetParam()));
  EXPECT_EQ(StopSignals::received(), GetParam()) << "and is not forgotten";
}

INSTANTIATE_TEST_SUITE_P(, StopSignal, testing::Values(SIGUSR1, SIGUSR2, SIGTERM, SIGHUP));

TEST(StopSignals, AHangupStopsNothingUnderNohup) {
  const auto before = std::signal(SIGHUP, SIG_IGN);
  {
    const StopSignals signals;
    std::raise(SIGHUP);
    EXPECT_EQ(StopSignals::received(), 0);
    struct sigaction now {};
    sigaction(SIGHUP, nullptr, &now);
    EXPECT_EQ(now.sa_handler, SIG_IGN);
  }
  std::signal(SIGHUP, before);
}

/// End of a one-threaded process that runs `body`, whose value is its exit code.
int end_of(int (*body)()) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

void sleep_for(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

TEST(StopSignals, ASignalIsNotMissedWhileAThreadTakesIt) {
  const int status = end_of([] {
    const StopSignals signals;
    slow_reader = true;
    ::kill(::getpid(), SIGUSR1);
    while (pending(SIGUSR1)) std::this_thread::yield();
    return StopSignals::received() == SIGUSR1 ? 0 : 1;
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(StopSignals, ASecondTermEndsTheProcessAtOnce) {
  static std::array<int, 2> ends;
  ASSERT_EQ(::pipe(ends.data()), 0);
  const int status = end_of([] {
    const StopSignals signals;
    ::kill(::getpid(), SIGTERM);
    while (StopSignals::received() != SIGTERM) sleep_for(10);
    (void)!::write(ends[1], "1", 1);
    sleep_for(2100);
    ::kill(::getpid(), SIGTERM);
    sleep_for(60'000);  // it computes on
    return 1;
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
  ::close(ends[1]);
  char text = 0;
  EXPECT_EQ(::read(ends[0], &text, 1), 1) << "the first one ended it";
  ::close(ends[0]);
}

TEST(StopSignals, ATermThatIsDeliveredTwiceIsOneRequest) {
  using Clock = std::chrono::steady_clock;
  int status = 0;
  for (bool late = true; late;) {  // repeated if a busy machine delays them so that they count as two
    const Clock::time_point begin = Clock::now();
    status = end_of([] {
      const StopSignals signals;
      for (int i = 0; i < 2; ++i) {
        ::kill(::getpid(), SIGTERM);
        while (pending(SIGTERM)) sleep_for(1);
        if (StopSignals::received() != SIGTERM) return 1;
      }
      return 75;
    });
    late = Clock::now() - begin > std::chrono::milliseconds(1900);
  }
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 75) << status;
}

volatile std::sig_atomic_t handled = 0;

TEST(StopSignals, LeaveNothingBehind) {
  const auto before = std::signal(SIGUSR1, [](int) { handled = 1; });
  {
    const StopSignals signals;
    EXPECT_EQ(StopSignals::received(), 0);
    std::raise(SIGUSR1);
  }
  EXPECT_EQ(handled, 0);
  std::raise(SIGUSR1);
  EXPECT_EQ(handled, 1);
  std::signal(SIGUSR1, before);
}

TEST(StopSignals, AnInterruptRunsOnASeparateStack) {
  const StopSignals signals;
  stack_t stack{};
  sigaltstack(nullptr, &stack);
  EXPECT_EQ(stack.ss_flags & SS_DISABLE, 0);
  struct sigaction action {};
  sigaction(SIGINT, nullptr, &action);
  EXPECT_NE(action.sa_flags & SA_ONSTACK, 0);
  std::raise(SIGINT);
  EXPECT_EQ(StopSignals::received(), SIGINT);
}

}  // namespace
}  // namespace trireme::supervise
