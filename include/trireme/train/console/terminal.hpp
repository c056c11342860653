// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace trireme::train {

/// Properties of standard output.
struct TerminalInfo {
  bool terminal = false;           ///< it is a terminal
  bool under_open_mpi = false;     ///< Open MPI connects ranks to pseudo-terminals, even if its output is no terminal
  bool launcher_terminal = false;  ///< the launcher's standard output is a terminal; only checked under Open MPI
  std::string term;                ///< TERM
  bool no_color = false;           ///< NO_COLOR is set (no-color.org)
};

/// Looks at this process's standard output and, under Open MPI, at the launcher's.
[[nodiscard]] TerminalInfo probe_terminal();

/// Whether standard error shows on a terminal in the end.
[[nodiscard]] bool stderr_is_terminal();

/// Whether a person watches, so that a line may rewrite itself; everything else gets plain lines.
[[nodiscard]] bool rewrites_lines(const TerminalInfo& surroundings);

/// Width of the terminal of standard output; 80 if it is unknown.
[[nodiscard]] int terminal_columns();

}  // namespace trireme::train
