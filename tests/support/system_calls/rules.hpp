// SPDX-License-Identifier: Apache-2.0
//
// The rules that a test sets for system calls, and the log of calls: see system_calls.cpp.
#pragma once
#include <string>

namespace trireme::test::calls {

enum class Answer { make_the_call, fail, done };

/// The outcome of this call according to the rules; sets errno for a failure. Sleeps for rules with `sleep`.
Answer judge(const char* call, const std::string& path);

/// Appends a successful call to the log.
void note(const char* call, const std::string& path);

}  // namespace trireme::test::calls
