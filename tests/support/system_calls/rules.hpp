// SPDX-License-Identifier: Apache-2.0
//
// The rules that a test sets for system calls, and the log of calls: see system_calls.cpp.
#pragma once
#include <string>

namespace trireme::test::calls {

enum class Answer { make_the_call, fail, done };

/// Whether this process starts the ranks: its calls are made, neither judged nor logged, since its signal handlers make
/// system calls while others are judged.
bool is_launcher();

/// The outcome of this call according to the rules; sets errno for a failure. Sleeps for rules with `sleep`.
Answer judge(const char* call, const std::string& path);

/// Appends a successful call to the log.
void note(const char* call, const std::string& path);

}  // namespace trireme::test::calls
