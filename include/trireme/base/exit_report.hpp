// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <exception>
#include <string>
#include <string_view>

#include "trireme/base/error.hpp"

namespace trireme {

/// Exit code and message of a process that an exception ends.
struct ExitReport {
  ExitCode code = ExitCode::bug;
  std::string text;
};

/// The report of any exception: an Error's code and text; `environment` and a remedy for exhausted memory, threads and
/// descriptors; `write` for a full or failing disk; everything else is a bug. exception: not null.
[[nodiscard]] ExitReport exit_report(const std::exception_ptr& exception);

struct ExitMeaning {
  ExitCode code;
  std::string_view meaning;
};

/// Exit codes with their meanings: `trireme --help` prints the table, docs/troubleshooting.md repeats it.
inline constexpr std::array exit_meanings{
    ExitMeaning{ExitCode::done, "done"},
    ExitMeaning{ExitCode::bug, "a bug in Trireme"},
    ExitMeaning{ExitCode::usage, "command line, run file, mesh or batch against the ranks"},
    ExitMeaning{ExitCode::data, "token files, text, tokenizers"},
    ExitMeaning{ExitCode::checkpoint, "checkpoints and weight directories"},
    ExitMeaning{ExitCode::environment, "environment: MPI, GPU, libraries, memory"},
    ExitMeaning{ExitCode::numerics, "numerics: too many non-finite steps in a row, or replicas that differ"},
    ExitMeaning{ExitCode::hang, "a hang: a rank was silent for comm.timeout_seconds"},
    ExitMeaning{ExitCode::write, "failed writes: disk full, quota, permissions"},
    ExitMeaning{ExitCode::requeue, "saved on a signal or before the time limit: submit the job again"},
};

/// The table, one line per code, and "128+n" for signals.
[[nodiscard]] std::string exit_code_table();

}  // namespace trireme
