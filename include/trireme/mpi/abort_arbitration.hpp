// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace trireme::mpi {

class Communicator;

/// Selects the rank that prints why the job ends: the first one of a node whose ranks fail together. Words in memory
/// that the ranks of the node share, so that it works in any state of MPI, also after MPI_Finalize.
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

  /// MPI_Finalize has returned on this rank.
  void set_finalized() noexcept;
  /// mpi::unfinalized_ranks.
  [[nodiscard]] std::string unfinalized_ranks() const;

 private:
  struct Process {
    int pid = 0;
    int rank = 0;  ///< of the job
  };
  /// The other ranks of the node that `chosen` selects by their rank in the node: "rank 3 on n2, rank 5 on n2".
  [[nodiscard]] std::string names_of(const std::function<bool(std::size_t)>& chosen) const;
  [[nodiscard]] std::atomic<int>& finalized(std::size_t node_rank) const { return words_[1 + node_rank]; }

  std::vector<Process> node_;          ///< by rank in the node; empty if a rank does not see the others' processes
  std::span<std::atomic<int>> words_;  ///< claimed, then one for each rank of the node: finalized; may be empty
  std::string host_;
  std::size_t node_rank_ = 0;
  bool all_share_ = false;  ///< no rank of the node has empty words
  bool on_first_node_ = true;
};

}  // namespace trireme::mpi
