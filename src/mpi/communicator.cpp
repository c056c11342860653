// SPDX-License-Identifier: Apache-2.0
#include "trireme/mpi/communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string_view>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/mpi/topology.hpp"

namespace trireme::mpi {

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
  if (!nodes_ || job < 0 || static_cast<std::size_t>(job) >= nodes_->size()) return fmt::format("rank {}", job);
  return fmt::format("rank {} on {}", job, (*nodes_)[static_cast<std::size_t>(job)]);
}

void Communicator::learn_nodes() {
  constexpr std::size_t longest = 64;
  std::string mine = hostname();
  mine.resize(longest);
  int ranks = 0;
  check(MPI_Comm_size(MPI_COMM_WORLD, &ranks), "read the job's size");
  std::string all(longest * static_cast<std::size_t>(ranks), '\0');
  check(MPI_Allgather(mine.data(), longest, MPI_CHAR, all.data(), longest, MPI_CHAR, MPI_COMM_WORLD),
        "collect the nodes' names");
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin < all.size(); begin += longest)
    names.emplace_back(all.c_str() + begin, std::min(longest, std::string_view(all).find('\0', begin) - begin));
  nodes_ = std::make_shared<const std::vector<std::string>>(std::move(names));
}

}  // namespace trireme::mpi
