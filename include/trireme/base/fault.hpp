// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace trireme::fault {

/// Sets the rank and step of this process, at which a fault can be aimed. Rank -1: any.
void set_rank(int rank);
void set_step(long step);
/// The step that the calling thread works for, if it differs from the process's, as in a background save.
void set_step_of_thread(long step);

/// A named place where tests inject a fault: inert unless TRIREME_FAULT was set at the start to a comma-separated list
/// of `point:action[:rank[:step]]`, `*` or nothing meaning any. Actions: kill (SIGKILL), stop (SIGSTOP), slow (50 ms),
/// usr1 (SIGUSR1), throw (BugError), exit (status 1), nan (returns true; the caller poisons a number). Returns true
/// when a value fault is to be applied here. Throws ConfigError when the variable does not parse.
bool point(std::string_view name);

/// Replaces the text of TRIREME_FAULT; "" disarms.
void arm(std::string text);

/// True when something is to break: `train` warns.
[[nodiscard]] bool armed();

}  // namespace trireme::fault
