// SPDX-License-Identifier: Apache-2.0
//
// Messages between pipeline ranks: a channel leads from one rank to another and has a separate NCCL communicator, so
// that a wait for one neighbour does not block messages of another.
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "comm/cuda/nccl.hpp"
#include "comm/cuda/nccl_watch.hpp"
#include "comm/device_memory.hpp"
#include "trireme/base/error.hpp"
#include "trireme/comm/device_transports.hpp"

namespace trireme::comm {
namespace {

/// The communicators of a rank's channels. Both ends of a channel make and end it, each waiting for the other; so all
/// ranks do that in one order.
class Handles {
 public:
  ~Handles() {
    for (auto& handle : in_order_) handle.reset();
  }
  nccl::Handle& add(const mpi::Communicator& pair, const mpi::Deadline& deadline, const NcclSettings& settings) {
    return *in_order_.emplace_back(std::make_unique<nccl::Handle>(pair, deadline, settings));
  }

 private:
  std::vector<std::unique_ptr<nccl::Handle>> in_order_;
};

/// Neighbours of a ring make their communicators in rounds in which no rank is in two pairs, so that start-up takes as
/// long for many ranks as for three: ranks 0 and 1, 2 and 3, ... first, then 1 and 2, 3 and 4, ..., the last and 0;
/// where the number of ranks is odd, this last pair takes a third round.
int pair_rounds(int ranks) { return ranks == 2 ? 1 : ranks % 2 == 0 ? 2 : 3; }

/// The first rank of the pair (first, first + 1) that `rank` is in; -1: none in this round.
int first_of_pair(int rank, int ranks, int round) {
  for (const int first : {rank, (rank + ranks - 1) % ranks}) {
    const bool closes = ranks % 2 != 0 && first == ranks - 1;
    if (round == (closes ? 2 : first % 2)) return first;
  }
  return -1;
}

/// This rank's end of its channels in one direction.
class ChannelEnds final : public DeviceTransport {
 public:
  ChannelEnds(int rank, int size, c10::Device device, std::shared_ptr<Handles> handles)
      : DeviceTransport(device), rank_(rank), size_(size), handles_(std::move(handles)) {}

  void add(int peer, nccl::Handle& handle, int rank_of_peer) { ends_.try_emplace(peer, handle, rank_of_peer); }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::string name() const override { return "nccl"; }

  void exchange(const std::byte* out, std::byte* in, std::int64_t count, int peer, mpi::Wait& wait) override {
    invariant((out == nullptr) != (in == nullptr), "a channel leads one way");
    const auto found = ends_.find(peer);
    invariant(found != ends_.end(), "a message goes over a channel that was made");
    last_ = &found->second;
    last_->watch.raise();
    const auto bytes = static_cast<std::size_t>(count);
    last_->handle.launch(out != nullptr ? "send" : "receive", wait, [&](ncclComm_t comm) {
      return out != nullptr ? ncclSend(out, bytes, ncclInt8, last_->peer, comm, stream())
                            : ncclRecv(in, bytes, ncclInt8, last_->peer, comm, stream());
    });
  }

  bool ends_later(mpi::FlightLane& lane, const mpi::Operation& operation, const mpi::Deadline& deadline,
                  const mpi::FlightRecorder& recorder) override {
    last_->watch.add(lane, operation, deadline, recorder, c10::cuda::getCurrentCUDAStream(device().index()).unwrap());
    return true;
  }

  void all_gather(const std::byte*, std::byte*, Parts, mpi::Wait&) override { never(); }
  void reduce_scatter(const float*, float*, Parts, DType, bool, mpi::Wait&) override { never(); }
  void broadcast(std::span<std::byte>, int, mpi::Wait&) override { never(); }
  void barrier(mpi::Wait&) override { never(); }

 private:
  struct End {
    End(nccl::Handle& of, int to) : handle(of), peer(to), watch(of) {}
    nccl::Handle& handle;
    int peer;  ///< in the channel's communicator
    nccl::Watch watch;
  };
  static void never() { throw BugError("channels carry messages between two ranks, no collectives"); }
  [[nodiscard]] cudaStream_t stream() const { return c10::cuda::getCurrentCUDAStream(device().index()).stream(); }

  int rank_, size_;
  std::shared_ptr<Handles> handles_;  ///< outlive the watches; end with the second of the two directions
  std::map<int, End> ends_;
  End* last_ = nullptr;  ///< of the message that was launched last: a lane's thread is the only one here
};

}  // namespace

Channels nccl_channels(const mpi::Communicator& communicator, c10::Device device, const mpi::Deadline& deadline,
                       const ChannelPeers& peers, const NcclSettings& settings) {
  const c10::cuda::CUDAGuard guard(device);
  const int ranks = communicator.size(), mine = communicator.rank();
  auto handles = std::make_shared<Handles>();
  auto send = std::make_unique<ChannelEnds>(mine, ranks, device, handles);
  auto receive = std::make_unique<ChannelEnds>(mine, ranks, device, handles);
  std::size_t made = 0;
  for (int round = 0; round < pair_rounds(ranks); ++round) {
    const int first = first_of_pair(mine, ranks, round);
    const mpi::Communicator pair = communicator.split(first >= 0 ? first : ranks + mine, mine);
    if (first < 0) continue;
    const int second = (first + 1) % ranks;
    const int peer = mine == first ? second : first;
    for (const auto& [from, to] : {std::pair{first, second}, {second, first}}) {
      ChannelEnds& ends = mine == from ? *send : *receive;
      if (!(mine == from ? peers.to : peers.from).contains(peer)) continue;
      ends.add(peer, handles->add(pair, deadline, settings), 1 - pair.rank());
      ++made;
    }
  }
  invariant(made == peers.to.size() + peers.from.size(), "channels lead to the neighbours in a pipeline");
  return {.send = std::move(send), .receive = std::move(receive)};
}

}  // namespace trireme::comm
