// SPDX-License-Identifier: Apache-2.0
#include "cli/supervise/child.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "trireme/base/error.hpp"

namespace trireme::cli {
namespace {

using std::chrono::milliseconds;

/// In the child: replaces the process, or returns errno.
int execute(const std::vector<std::string>& words, const EnvironmentVariables& variables, int errors,
            bool discards_output, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(128 + SIGTERM);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int nothing = ::open("/dev/null", O_RDWR);
  ::dup2(nothing, STDIN_FILENO);
  if (discards_output) ::dup2(nothing, STDOUT_FILENO);
  ::dup2(errors, STDERR_FILENO);
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));  // NOLINT: of exec
  arguments.push_back(nullptr);
  ::execvp(arguments.front(), arguments.data());
  return errno;
}

}  // namespace

std::vector<int> supervised_signals() { return {SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGHUP}; }

Child::Child(const std::vector<std::string>& words, const EnvironmentVariables& variables, bool discards_output) {
  std::array<int, 2> errors{}, started{};
  if (::pipe2(errors.data(), O_CLOEXEC) != 0 || ::pipe2(started.data(), O_CLOEXEC) != 0)
    throw EnvironmentError(fmt::format("{} cannot be started: {}", words.front(), std::strerror(errno)));
  errors_ = io::Descriptor(errors[0]);
  io::Descriptor in_errors(errors[1]), why(started[0]), in_why(started[1]);
  ::fcntl(errors_.get(), F_SETFL, O_NONBLOCK);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {
    const int error = execute(words, variables, in_errors.get(), discards_output, parent);
    (void)!::write(in_why.get(), &error, sizeof(error));
    ::_exit(127);
  }
  int error = errno;
  in_why.close();
  if (pid_ > 0 && ::read(why.get(), &error, sizeof(error)) != sizeof(error)) return;  // it runs
  if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
  throw EnvironmentError(fmt::format("{} cannot be started: {}", words.front(), std::strerror(error)));
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), code_(other.code_), errors_(std::move(other.errors_)) {}

Child::~Child() {
  if (pid_ > 0 && !code_) end();
}

std::optional<int> Child::poll() {
  int status = 0;
  if (!code_ && ::waitpid(pid_, &status, WNOHANG) == pid_)
    code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return code_;
}

void Child::signal(int number) const {
  if (pid_ > 0 && !code_) ::kill(pid_, number);
}

int Child::end() {
  signal(SIGTERM);
  for (int i = 0; i < 200 && !poll(); ++i) {
    std::array<char, 4096> unread{};
    while (::read(errors_.get(), unread.data(), unread.size()) > 0) {
    }
    std::this_thread::sleep_for(milliseconds(10));
  }
  if (!poll()) {
    ::kill(-pid_, SIGKILL);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    code_ = 128 + SIGKILL;
  }
  return *code_;
}

}  // namespace trireme::cli
