// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "trireme/base/error.hpp"

namespace trireme::mpi {

class Communicator;

/// An error that every rank of the job throws alike: the job ends without MPI_Abort.
class SharedError : public Error {
 public:
  SharedError(ExitCode code, const std::string& message, bool prints) : Error(code, message), prints_(prints) {}
  /// On the one rank that prints it.
  [[nodiscard]] bool prints() const noexcept { return prints_; }

 private:
  bool prints_;
};

/// Runs `work` on every rank. Where it throws an Error, on any of them, every rank throws SharedError with code and
/// message of the lowest such rank. Collective over `communicator`: `work` has no collective call behind what may
/// throw.
void together(const Communicator& communicator, const std::function<void()>& work);

}  // namespace trireme::mpi
