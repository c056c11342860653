// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/mpi/deadline.hpp"
#include "trireme/mpi/mpi.hpp"

namespace trireme::mpi {

/// Owns one MPI communicator; its errors are returned and thrown, never MPI's silent abort.
/// The destructor frees it, which is collective: all ranks destroy their communicators in the same order. While an
/// exception unwinds the stack, or after MPI_Finalize, it is left alone, so that a failing rank never waits for the
/// others there.
class Communicator {
 public:
  /// A duplicate of a raw handle that the caller keeps (tests and other libraries). Collective over `handle`.
  [[nodiscard]] static Communicator from(MPI_Comm handle);

  Communicator(Communicator&& other) noexcept;
  Communicator& operator=(Communicator&& other) noexcept;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator();

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }

  /// The same ranks with their own message space. Collective.
  [[nodiscard]] Communicator duplicate() const;
  /// The ranks that gave the same `color` (not negative), ordered by `key`, then by rank here. Collective.
  [[nodiscard]] Communicator split(int color, int key) const;
  /// The ranks that share this rank's node (its memory), in the order of the ranks here. Collective.
  [[nodiscard]] Communicator node() const;

  /// The rank in the whole job of the group's member `rank`: for messages that name a rank.
  [[nodiscard]] int job_rank(int rank) const;
  /// The same with its node, "rank 3 on n2", once this communicator or the one it was made from has learnt the nodes.
  [[nodiscard]] std::string name_of(int rank) const;
  /// Gathers the node of every rank of the job. Collective over the job, O(log ranks) messages; 64 bytes a node and 4 a
  /// rank, in one allocation each.
  void learn_nodes();
  /// some_rank_of_each node, by their rank in the job; empty if the nodes are not learnt.
  [[nodiscard]] std::vector<int> rank_of_each_node() const;

  /// Sets the timeout of calls that exchange texts and flags (gather.hpp, broadcast.hpp) on this communicator and on
  /// those derived from it afterwards; without one they wait forever.
  void set_deadline(Deadline deadline) { deadline_ = std::make_shared<const Deadline>(std::move(deadline)); }
  /// Null: none.
  [[nodiscard]] const Deadline* deadline() const noexcept { return deadline_.get(); }

  [[nodiscard]] MPI_Comm handle() const noexcept { return handle_; }

 private:
  struct Nodes {
    std::string names;              ///< of `longest_name` bytes each, padded with zeros
    std::vector<int> node_of_rank;  ///< by rank of the job
    std::vector<int> some_rank;     ///< by node: rank_of_each_node
  };

  explicit Communicator(MPI_Comm owned) : Communicator(owned, nullptr) {}
  /// parent: source of the nodes' names and the deadline; null: none.
  Communicator(MPI_Comm owned, const Communicator* parent);
  void release() noexcept;

  MPI_Comm handle_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  int exceptions_at_construction_ = 0;
  std::shared_ptr<const Nodes> nodes_;  ///< null: not learnt
  std::shared_ptr<const Deadline> deadline_;
};

/// A rank of each node: of node k its rank k modulo its number of ranks, so that ranks of every place in a node are
/// among them. node_of_rank: by rank, each node has one.
[[nodiscard]] std::vector<int> some_rank_of_each(std::span<const int> node_of_rank, int nodes);

}  // namespace trireme::mpi
