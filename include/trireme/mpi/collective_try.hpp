// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/error.hpp"

namespace trireme::mpi {

class Communicator;

/// A failure of one rank.
struct Failure {
  ExitCode code = ExitCode::bug;
  std::string message;
  int rank = 0;  ///< in the job
};

/// An error that every rank of a communicator throws with equal text and code: the job ends without MPI_Abort.
class CollectiveError : public Error {
 public:
  /// failures: by rank, not empty; the first one determines the code. text: all of them. prints: on one rank only.
  CollectiveError(std::vector<Failure> failures, const std::string& text, bool prints);
  /// `error`, which every rank of `communicator` has thrown with the same text; its first rank prints it.
  CollectiveError(const Communicator& communicator, const Error& error);

  /// At most four with different codes or messages; every code of a failed rank is among them, as far as four suffice.
  [[nodiscard]] const std::vector<Failure>& failures() const noexcept { return failures_; }
  [[nodiscard]] bool prints() const noexcept { return prints_; }

 private:
  std::vector<Failure> failures_;
  bool prints_;
};

/// Runs `work` on every rank. If it throws on any of them, every rank throws CollectiveError with the code of the
/// lowest such rank, "[rank 3 on n2]" before each message unless the only one is rank 0's, and "and 9 more" for ranks
/// with further messages. HangError passes through. A CollectiveError of a group within `communicator` counts once.
/// what: completes "this rank waits for the others to ...": "open the token files". Collective over `communicator`, one
/// all-reduce if nothing fails: in `work` no collective call may follow code that can throw.
void collective_try(const Communicator& communicator, std::string_view what, const std::function<void()>& work);

/// Reports progress of long work on the first rank to the ranks that wait for its end.
struct Progress {
  /// Called on every rank after each report.
  std::function<void()> mark{};
  /// Returns an object that calls `report`, from any thread, while the work makes progress. The first rank destroys it
  /// before it broadcasts the end.
  std::function<std::shared_ptr<void>(std::function<void()> report)> watch{};
};

/// The text that `work` returns on the first rank, on every rank. `work` must not call MPI. If it throws, every rank
/// throws CollectiveError. what: as for collective_try. Collective over `communicator`.
[[nodiscard]] std::string on_first_rank(const Communicator& communicator, std::string_view what,
                                        const std::function<std::string()>& work, const Progress& progress = {});

}  // namespace trireme::mpi
