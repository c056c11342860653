// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/process.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>

namespace trireme {
namespace {

/// Field `number` of /proc/PID/stat, counted from 1 as proc(5) does, from 3 on; "" when there is no such process, or it
/// does not show.
std::string stat_field(pid_t pid, int number) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line, word;
  if (!std::getline(file, line) || line.rfind(')') == std::string::npos) return "";
  std::istringstream words(line.substr(line.rfind(')') + 1));  // field 2, the name, may hold blanks
  for (int i = 2; i < number; ++i) words >> word;
  return word;
}

}  // namespace

bool process_has_ended(pid_t pid) {
  if (::kill(pid, 0) != 0) return errno != EPERM;
  const std::string state = stat_field(pid, 3);
  return state == "Z" || state == "X";
}

std::string process_start(pid_t pid) { return stat_field(pid, 22); }

double process_age_seconds() {
  const std::string ticks = process_start(::getpid());
  timespec now{};
  if (ticks.empty() || ::clock_gettime(CLOCK_BOOTTIME, &now) != 0) return 0;
  const double since_boot = static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  return std::max(0.0, since_boot - std::strtod(ticks.c_str(), nullptr) / static_cast<double>(::sysconf(_SC_CLK_TCK)));
}

}  // namespace trireme
