// SPDX-License-Identifier: Apache-2.0
#include "trireme/mpi/communicator.hpp"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <exception>
#include <span>
#include <string_view>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/mpi/topology.hpp"

namespace trireme::mpi {
namespace {

constexpr int longest_name = 64;  // of a node, cut there

}  // namespace

Communicator::Communicator(MPI_Comm owned, const Communicator* parent)
    : handle_(owned), exceptions_at_construction_(std::uncaught_exceptions()) {
  if (parent != nullptr) {
    nodes_ = parent->nodes_;
    deadline_ = parent->deadline_;
  }
  try {
    check(MPI_Comm_set_errhandler(handle_, MPI_ERRORS_RETURN), "set a communicator's error handler");
    check(MPI_Comm_rank(handle_, &rank_), "read the rank");
    check(MPI_Comm_size(handle_, &size_), "read a communicator's size");
  } catch (...) {
    MPI_Comm_free(&handle_);
    throw;
  }
}

Communicator::Communicator(Communicator&& other) noexcept
    : handle_(std::exchange(other.handle_, MPI_COMM_NULL)),
      rank_(other.rank_),
      size_(other.size_),
      exceptions_at_construction_(std::uncaught_exceptions()),
      nodes_(std::move(other.nodes_)),
      deadline_(std::move(other.deadline_)) {}

Communicator& Communicator::operator=(Communicator&& other) noexcept {
  if (this == &other) return *this;
  release();
  handle_ = std::exchange(other.handle_, MPI_COMM_NULL);
  rank_ = other.rank_;
  size_ = other.size_;
  nodes_ = std::move(other.nodes_);
  deadline_ = std::move(other.deadline_);
  return *this;
}

Communicator::~Communicator() { release(); }

void Communicator::release() noexcept {
  if (handle_ == MPI_COMM_NULL) return;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0 && std::uncaught_exceptions() <= exceptions_at_construction_) MPI_Comm_free(&handle_);
  handle_ = MPI_COMM_NULL;
}

Communicator Communicator::from(MPI_Comm handle) {
  invariant(handle != MPI_COMM_NULL, "a communicator is made from a valid handle");
  MPI_Comm copy = MPI_COMM_NULL;
  check(MPI_Comm_dup(handle, &copy), "duplicate a communicator");
  return Communicator(copy);
}

Communicator Communicator::duplicate() const {
  Communicator copy = from(handle_);
  copy.nodes_ = nodes_;
  copy.deadline_ = deadline_;
  return copy;
}

Communicator Communicator::split(int color, int key) const {
  invariant(color >= 0, "a split's colour is not negative");
  MPI_Comm part = MPI_COMM_NULL;
  check(MPI_Comm_split(handle_, color, key, &part), "split a communicator");
  return Communicator(part, this);
}

Communicator Communicator::node() const {
  MPI_Comm part = MPI_COMM_NULL;
  check(MPI_Comm_split_type(handle_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &part), "find the ranks of this node");
  return Communicator(part, this);
}

int Communicator::job_rank(int rank) const {
  MPI_Group here = MPI_GROUP_NULL;
  MPI_Group job = MPI_GROUP_NULL;
  check(MPI_Comm_group(handle_, &here), "read a communicator's group");
  check(MPI_Comm_group(MPI_COMM_WORLD, &job), "read the job's group");
  int answer = MPI_UNDEFINED;
  const int code = MPI_Group_translate_ranks(here, 1, &rank, job, &answer);
  MPI_Group_free(&here);
  MPI_Group_free(&job);
  check(code, "translate a rank");
  return answer;
}

std::string Communicator::name_of(int rank) const {
  const int job = job_rank(rank);
  if (!nodes_ || job < 0 || static_cast<std::size_t>(job) >= nodes_->node_of_rank.size())
    return fmt::format("rank {}", job);
  const auto node = static_cast<std::size_t>(nodes_->node_of_rank[static_cast<std::size_t>(job)]);
  const std::string_view name = std::string_view(nodes_->names).substr(node * longest_name, longest_name);
  return fmt::format("rank {} on {}", job, name.substr(0, name.find('\0')));
}

std::vector<int> some_rank_of_each(std::span<const int> node_of_rank, int nodes) {
  std::vector<int> ranks_of(static_cast<std::size_t>(nodes)), seen = ranks_of, result = ranks_of;
  for (const int node : node_of_rank) ++ranks_of[static_cast<std::size_t>(node)];
  for (std::size_t rank = 0; rank < node_of_rank.size(); ++rank) {
    const auto node = static_cast<std::size_t>(node_of_rank[rank]);
    if (seen[node]++ == node_of_rank[rank] % ranks_of[node]) result[node] = static_cast<int>(rank);
  }
  return result;
}

void Communicator::learn_nodes() {
  const Communicator here = node();
  const bool first = here.rank() == 0;
  const Communicator alike = split(first ? 0 : 1, rank_);  // of the first ranks: one a node
  std::array<int, 2> known{alike.rank(), alike.size()};    // this node, all nodes
  check(MPI_Bcast(known.data(), 2, MPI_INT, 0, here.handle()), "count the nodes");
  const auto [own, count] = known;

  Nodes nodes;
  nodes.names.resize(longest_name * static_cast<std::size_t>(count));
  if (first) {
    std::string name = hostname();
    name.resize(longest_name);
    check(
        MPI_Allgather(name.data(), longest_name, MPI_CHAR, nodes.names.data(), longest_name, MPI_CHAR, alike.handle()),
        "collect the nodes' names");
  }
  check(MPI_Bcast(nodes.names.data(), static_cast<int>(nodes.names.size()), MPI_CHAR, 0, here.handle()),
        "share the nodes' names");
  nodes.node_of_rank.resize(static_cast<std::size_t>(size_));
  check(MPI_Allgather(&own, 1, MPI_INT, nodes.node_of_rank.data(), 1, MPI_INT, handle_), "find every rank's node");
  nodes.some_rank = some_rank_of_each(nodes.node_of_rank, count);
  nodes_ = std::make_shared<const Nodes>(std::move(nodes));
}

std::vector<int> Communicator::rank_of_each_node() const { return nodes_ ? nodes_->some_rank : std::vector<int>(); }

}  // namespace trireme::mpi
