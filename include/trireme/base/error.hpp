// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// Process exit codes: the contract with batch scripts (`trireme --help` lists them).
enum class ExitCode : int {
  done = 0,
  bug = 1,
  usage = 2,
  data = 3,
  checkpoint = 4,
  environment = 5,
  numerics = 6,
  hang = 7,
  write = 8,
  requeue = 75,
};

/// An error that a user can act on: the value found, the allowed values, and a remedy. `what()` is the whole message;
/// the category determines the exit code.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

/// Usage or run-file mistakes, mesh or batch against the ranks included. Exit code 2.
struct ConfigError : Error {
  explicit ConfigError(const std::string& message) : Error(ExitCode::usage, message) {}
};
/// Token files and tokenizers. Exit code 3.
struct DataError : Error {
  explicit DataError(const std::string& message) : Error(ExitCode::data, message) {}
};
/// Checkpoints and weight directories. Exit code 4.
struct CheckpointError : Error {
  explicit CheckpointError(const std::string& message) : Error(ExitCode::checkpoint, message) {}
};
/// MPI, GPU, libraries, memory. Exit code 5.
struct EnvironmentError : Error {
  explicit EnvironmentError(const std::string& message) : Error(ExitCode::environment, message) {}
};
/// Non-finite numbers for too long. Exit code 6.
struct NumericsError : Error {
  explicit NumericsError(const std::string& message) : Error(ExitCode::numerics, message) {}
};
/// A deadline passed. Exit code 7.
struct HangError : Error {
  explicit HangError(const std::string& message) : Error(ExitCode::hang, message) {}
};
/// Failed writes. Exit code 8.
struct WriteError : Error {
  explicit WriteError(const std::string& message) : Error(ExitCode::write, message) {}
};
/// A broken invariant: a bug in Trireme, never the user's fault. Exit code 1.
struct BugError : Error {
  explicit BugError(const std::string& message) : Error(ExitCode::bug, message) {}
};

/// Throws BugError with the caller's place unless `holds`.
void invariant(bool holds, std::string_view what, std::source_location where = std::source_location::current());

/// Collects mistakes so that all of them are reported at once.
class Mistakes {
 public:
  void add(std::string message) { messages_.push_back(std::move(message)); }
  [[nodiscard]] bool empty() const noexcept { return messages_.empty(); }
  [[nodiscard]] const std::vector<std::string>& messages() const noexcept { return messages_; }
  /// Throws ConfigError listing every mistake, one a line, under `heading`; does nothing when there is none.
  void raise(std::string_view heading) const;

 private:
  std::vector<std::string> messages_;
};

}  // namespace trireme
