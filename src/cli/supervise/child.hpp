// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/io/descriptor.hpp"

namespace trireme::cli {

/// Signals that `trireme supervise` handles itself; all are blocked in its threads.
[[nodiscard]] std::vector<int> supervised_signals();

/// Names and values.
using EnvironmentVariables = std::vector<std::pair<std::string, std::string>>;

/// A launcher in a separate process group, without standard input. It gets SIGTERM when this process ends, by
/// which srun and mpirun end their ranks.
class Child {
 public:
  /// variables: added to the environment. Standard error goes to a pipe; standard output is inherited, or discarded.
  /// Throws EnvironmentError if there is no process or no program of that name.
  Child(const std::vector<std::string>& words, const EnvironmentVariables& variables, bool discards_output);
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  /// Ends a running child: SIGTERM, after two seconds SIGKILL.
  ~Child();

  /// The exit code, 128 + n after signal n; nothing while it runs.
  [[nodiscard]] std::optional<int> poll();
  void signal(int number) const;
  /// SIGTERM, after two seconds SIGKILL; returns the exit code.
  int end();

  /// The pipe of standard error, non-blocking.
  [[nodiscard]] int errors() const { return errors_.get(); }

 private:
  pid_t pid_ = -1;
  std::optional<int> code_;
  io::Descriptor errors_;
};

}  // namespace trireme::cli
