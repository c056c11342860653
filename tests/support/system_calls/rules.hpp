// SPDX-License-Identifier: Apache-2.0
//
// What a test wants to happen to system calls, and the log of those that were made: see system_calls.cpp.
#pragma once
#include <string>

namespace trireme::test::calls {

enum class Answer { make_the_call, fail, done };

/// What the rules say of this call; where it fails, errno is set. Sleeps where a rule says so.
Answer judge(const char* call, const std::string& path);

/// Appends a successful call to the log.
void note(const char* call, const std::string& path);

}  // namespace trireme::test::calls
