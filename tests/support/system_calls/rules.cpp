// SPDX-License-Identifier: Apache-2.0
#include "support/system_calls/rules.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::test::calls {
namespace {

struct Rule {
  std::string call;
  std::string rank;
  long nth = 1;
  long last = LONG_MAX;
  std::string what;
  std::string part;
  long seen = 0;
};

std::string environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

std::string rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"})
    if (const char* text = std::getenv(name)) return text;
  return "0";
}

/// Signals that wait while it lives: a handler's own system calls would wait for the lock of the interrupted call.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

/// The whole of a small file; raw system calls, as ours would come back here.
std::string contents(const std::string& path) {
  const auto file = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file < 0) return "";
  std::array<char, 4096> text{};
  const long got = ::syscall(SYS_read, file, text.data(), text.size());
  ::syscall(SYS_close, file);
  return {text.data(), static_cast<std::size_t>(got < 0 ? 0 : got)};
}

std::vector<Rule> parsed(const std::string& text) {
  std::vector<Rule> rules;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::array<char, 16> call{};
    std::array<char, 16> rank{};
    std::array<char, 32> what{};
    std::array<char, 512> part{};
    std::array<char, 32> range{};
    Rule rule;
    if (std::sscanf(text.substr(at, end - at).c_str(), "%15s %15s %31s %31s %511s", call.data(), rank.data(),
                    range.data(), what.data(), part.data()) == 5 &&
        std::sscanf(range.data(), "%ld-%ld", &rule.nth, &rule.last) >= 1) {
      rule.call = call.data();
      rule.rank = rank.data();
      rule.what = what.data();
      rule.part = part.data();
      rules.push_back(rule);
    }
    at = end + 1;
  }
  return rules;
}

int error_named(const std::string& name) {
  for (int error = 1; error < 140; ++error)
    if (const char* known = strerrorname_np(error); known != nullptr && name == known) return error;
  std::fprintf(stderr, "system_calls: no errno %s\n", name.c_str());
  std::abort();
}

void sleep_for(double seconds) {
  timespec left{.tv_sec = static_cast<time_t>(seconds), .tv_nsec = 0};
  left.tv_nsec = static_cast<long>((seconds - static_cast<double>(left.tv_sec)) * 1e9);
  while (::nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

bool concerns(const Rule& rule, const std::string& path) {
  if (!rule.part.ends_with('$')) return path.find(rule.part) != std::string::npos;
  return path.ends_with(rule.part.substr(0, rule.part.size() - 1));
}

}  // namespace

namespace {

void append(const std::string& file, const std::string& line) {
  const auto log =
      static_cast<int>(::syscall(SYS_openat, AT_FDCWD, file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (log < 0 || ::syscall(SYS_write, log, line.data(), line.size()) != static_cast<long>(line.size())) std::abort();
  ::syscall(SYS_close, log);
}

}  // namespace

bool is_launcher() {
  static const bool found = [] {
    const std::string_view name = ::program_invocation_short_name;
    return name == "mpiexec" || name == "mpirun" || name == "orterun" || name == "orted" || name == "srun";
  }();
  return found;
}

Answer judge(const char* call, const std::string& path) {
  if (is_launcher()) return Answer::make_the_call;
  static const std::string sites = environment("SYSTEM_CALLS_SITES");
  if (!sites.empty()) {
    const int before = errno;
    append(sites, std::string(call) + " " + path + "\n");
    errno = before;
  }
  static const std::string file = environment("SYSTEM_CALLS_RULES");
  if (file.empty()) return Answer::make_the_call;
  static std::mutex mutex;
  static std::string text;
  static std::vector<Rule> rules;
  const int kept = errno;
  std::string what;
  {
    const BlockedSignals blocked;
    const std::lock_guard lock(mutex);
    if (std::string now = contents(file); now != text) {
      rules = parsed(now);
      text = std::move(now);
    }
    for (Rule& rule : rules)
      if (rule.call == call && (rule.rank == "any" || rule.rank == rank()) && concerns(rule, path) &&
          ++rule.seen >= rule.nth && rule.seen <= rule.last)
        what = rule.what;
  }
  errno = kept;
  if (what.empty()) return Answer::make_the_call;
  if (what == "done") return Answer::done;
  if (what.starts_with("sleep=")) {
    sleep_for(std::atof(what.c_str() + 6));
    errno = kept;
    return Answer::make_the_call;
  }
  errno = error_named(what);
  return Answer::fail;
}

void note(const char* call, const std::string& path) {
  if (is_launcher()) return;
  static const std::string file = environment("SYSTEM_CALLS_LOG");
  if (file.empty() || !path.starts_with('/') || path.starts_with("/dev/") || path.starts_with("/proc/")) return;
  if (std::strcmp(call, "open") == 0) return;  // reads are many, and change nothing
  const int kept = errno;
  append(file, rank() + " " + std::to_string(::getpid()) + " " + call + " " + path + "\n");
  errno = kept;
}

}  // namespace trireme::test::calls
