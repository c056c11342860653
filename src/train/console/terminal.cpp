// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/console/terminal.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <optional>

namespace trireme::train {
namespace {

/// The parent of `process`; 0 when it is not known.
int parent_of(int process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string line;
  if (!std::getline(file, line)) return 0;
  const auto end = line.rfind(')');  // "42 (a name, blanks and all) S 41 ..."
  return end == std::string::npos || end + 4 > line.size() ? 0 : std::atoi(line.c_str() + end + 4);
}

struct File {
  dev_t device;
  ino_t inode;
  bool character;
  friend bool operator==(const File&, const File&) = default;
};

std::string path_of(int process, int descriptor) { return fmt::format("/proc/{}/fd/{}", process, descriptor); }

std::optional<File> file_of(int process, int descriptor) {
  struct stat status {};
  if (::stat(path_of(process, descriptor).c_str(), &status) != 0) return std::nullopt;
  return File{.device = status.st_dev, .inode = status.st_ino, .character = S_ISCHR(status.st_mode)};
}

bool is_terminal(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return false;
  const bool yes = ::isatty(descriptor) != 0;
  ::close(descriptor);
  return yes;
}

/// Under Open MPI the launcher is the nearest ancestor that writes into another file than we do, so that a shell
/// between the two does not hide it.
bool launcher_writes_to_a_terminal(int descriptor) {
  const std::optional<File> ours = file_of(::getpid(), descriptor);
  for (int process = ::getppid(); process > 1; process = parent_of(process)) {
    const std::optional<File> theirs = file_of(process, descriptor);
    if (!theirs) return false;
    if (theirs != ours) return theirs->character && is_terminal(path_of(process, descriptor));
  }
  return false;
}

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

}  // namespace

TerminalInfo probe_terminal() {
  TerminalInfo found{.terminal = ::isatty(STDOUT_FILENO) != 0,
                     .under_open_mpi = !variable("OMPI_COMM_WORLD_RANK").empty(),
                     .term = variable("TERM"),
                     .no_color = !variable("NO_COLOR").empty()};
  if (found.terminal && found.under_open_mpi) found.launcher_terminal = launcher_writes_to_a_terminal(STDOUT_FILENO);
  return found;
}

bool stderr_is_terminal() {
  const bool under_open_mpi = !variable("OMPI_COMM_WORLD_RANK").empty();
  return under_open_mpi ? launcher_writes_to_a_terminal(STDERR_FILENO) : ::isatty(STDERR_FILENO) != 0;
}

int terminal_columns() {
  constexpr int usual = 80;
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return usual;
  return size.ws_col;
}

bool rewrites_lines(const TerminalInfo& s) {
  if (!s.terminal || s.no_color || s.term.empty() || s.term == "dumb") return false;
  return !s.under_open_mpi || s.launcher_terminal;
}

}  // namespace trireme::train
