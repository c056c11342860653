// SPDX-License-Identifier: Apache-2.0
#include "trireme/supervise/stop_signals.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

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
  const StopSignals signals;
  std::raise(GetParam());
  EXPECT_TRUE(pending(GetParam()));
  EXPECT_EQ(StopSignals::received(), GetParam());
  EXPECT_FALSE(pending(GetParam()));
  EXPECT_EQ(StopSignals::received(), GetParam()) << "and is not forgotten";
}

INSTANTIATE_TEST_SUITE_P(, StopSignal, testing::Values(SIGUSR1, SIGUSR2, SIGTERM));

/// How a process ends that asks itself twice to stop and computes on meanwhile.
int end_of_two_terms(std::chrono::milliseconds apart) {
  const pid_t child = ::fork();
  if (child == 0) {
    const StopSignals signals;
    ::kill(::getpid(), SIGTERM);
    std::this_thread::sleep_for(apart);
    ::kill(::getpid(), SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    ::_exit(StopSignals::received() == SIGTERM ? 75 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(StopSignals, ASecondTermEndsTheProcessAtOnce) {
  const int status = end_of_two_terms(std::chrono::milliseconds(2100));
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
}

TEST(StopSignals, ATermThatIsDeliveredTwiceIsOneRequest) {
  const int status = end_of_two_terms(std::chrono::milliseconds(0));
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

TEST(StopSignals, AnInterruptRunsOnAStackOfItsOwn) {
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
