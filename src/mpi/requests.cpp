// SPDX-License-Identifier: Apache-2.0
#include "mpi/requests.hpp"

#include <algorithm>
#include <set>

#include "trireme/base/text.hpp"

namespace trireme::mpi {
namespace {

constexpr int tag = 0;  // a lane's messages between two ranks arrive in the order they were sent
constexpr std::int64_t piece = std::int64_t{1} << 30;

}  // namespace

Requests::~Requests() {
  for (MPI_Request& request : requests_) {
    if (request == MPI_REQUEST_NULL) continue;
    MPI_Cancel(&request);
    MPI_Request_free(&request);
  }
}

void Requests::send(const void* from, std::int64_t bytes, int to) {
  for (std::int64_t done = 0; done < bytes; done += piece) {
    peers_.push_back({.rank = to, .sends = true});
    check(MPI_Isend(static_cast<const std::byte*>(from) + done, static_cast<int>(std::min(piece, bytes - done)),
                    MPI_BYTE, to, tag, communicator_->handle(), &requests_.emplace_back(MPI_REQUEST_NULL)),
          "send");
  }
}

void Requests::receive(void* into, std::int64_t bytes, int from) {
  for (std::int64_t done = 0; done < bytes; done += piece) {
    peers_.push_back({.rank = from, .sends = false});
    check(MPI_Irecv(static_cast<std::byte*>(into) + done, static_cast<int>(std::min(piece, bytes - done)), MPI_BYTE,
                    from, tag, communicator_->handle(), &requests_.emplace_back(MPI_REQUEST_NULL)),
          "receive");
  }
}

MPI_Request* Requests::collective() {
  peers_.push_back({});
  return &requests_.emplace_back(MPI_REQUEST_NULL);
}

void Requests::wait_all(Wait& wait) {
  wait.until(
      [this] {
        int done = 0;
        check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE),
              "test for messages");
        return done != 0;
      },
      [this] { return missing(); });
  requests_.clear();
  peers_.clear();
}

// A rank that sends nothing is behind; one that takes nothing may itself wait for another.
std::string Requests::missing() const {
  std::set<int> silent;
  std::set<int> deaf;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    int done = 0;
    MPI_Request_get_status(requests_[i], &done, MPI_STATUS_IGNORE);
    if (done == 0 && peers_[i].rank) (peers_[i].sends ? deaf : silent).insert(*peers_[i].rank);
  }
  std::vector<std::string> names;
  for (const int rank : silent.empty() ? deaf : silent) names.push_back(communicator_->name_of(rank));
  return names.empty() ? "the other ranks of its group" : join(names, ", ");
}

}  // namespace trireme::mpi
