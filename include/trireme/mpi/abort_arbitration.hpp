// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <string>
#include <vector>

namespace trireme::mpi {

class Communicator;

/// Selects the rank that prints why the job ends: the first one of a node whose ranks fail together. A word in memory
/// that the ranks of the node share, so that it works in any state of MPI.
class AbortArbitration {
 public:
  /// Collective over `world`. Without shared memory every rank may print.
  explicit AbortArbitration(const Communicator& world);
  AbortArbitration(const AbortArbitration&) = delete;
  AbortArbitration& operator=(const AbortArbitration&) = delete;
  ~AbortArbitration();

  /// True for the first caller on this node, and where nothing is shared.
  [[nodiscard]] bool claim() const noexcept;
  /// Whether the whole job's first rank is on this node.
  [[nodiscard]] bool on_first_node() const noexcept { return on_first_node_; }
  /// mpi::ended_ranks.
  [[nodiscard]] std::string ended_ranks() const;

 private:
  struct Process {
    int pid = 0;
    std::string rank;  ///< "rank 3 on n2"
  };
  std::vector<Process> node_;  ///< empty where a rank does not see the others' processes
  std::atomic<int>* claimed_ = nullptr;
  bool on_first_node_ = true;
};

}  // namespace trireme::mpi
