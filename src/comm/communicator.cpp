// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/communicator.hpp"

#include <exception>
#include <utility>

#include "trireme/base/error.hpp"

namespace trireme::comm {

Communicator::Communicator(MPI_Comm owned) : handle_(owned), exceptions_at_birth_(std::uncaught_exceptions()) {
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
      exceptions_at_birth_(std::uncaught_exceptions()) {}

Communicator& Communicator::operator=(Communicator&& other) noexcept {
  if (this == &other) return *this;
  release();
  handle_ = std::exchange(other.handle_, MPI_COMM_NULL);
  rank_ = other.rank_;
  size_ = other.size_;
  return *this;
}

Communicator::~Communicator() { release(); }

void Communicator::release() noexcept {
  if (handle_ == MPI_COMM_NULL) return;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0 && std::uncaught_exceptions() <= exceptions_at_birth_) MPI_Comm_free(&handle_);
  handle_ = MPI_COMM_NULL;
}

Communicator Communicator::from(MPI_Comm handle) {
  invariant(handle != MPI_COMM_NULL, "a communicator is made from a valid handle");
  MPI_Comm copy = MPI_COMM_NULL;
  check(MPI_Comm_dup(handle, &copy), "duplicate a communicator");
  return Communicator(copy);
}

Communicator Communicator::duplicate() const { return from(handle_); }

Communicator Communicator::split(int color, int key) const {
  invariant(color >= 0, "a split's colour is not negative");
  MPI_Comm part = MPI_COMM_NULL;
  check(MPI_Comm_split(handle_, color, key, &part), "split a communicator");
  return Communicator(part);
}

Communicator Communicator::node() const {
  MPI_Comm part = MPI_COMM_NULL;
  check(MPI_Comm_split_type(handle_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &part), "find the ranks of this node");
  return Communicator(part);
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

}  // namespace trireme::comm
