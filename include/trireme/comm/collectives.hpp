// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/units.hpp"
#include "trireme/mpi/deadline.hpp"

namespace at {
class Tensor;
}
namespace trireme::mpi {
class Communicator;
class FlightLane;
class FlightRecorder;
}  // namespace trireme::mpi

namespace trireme::mesh {
enum class Group;
}
namespace trireme::schedule {
enum class Lane : std::uint8_t;
}

namespace trireme::comm {

class AllReduce;
class Counters;
class Transport;
enum class WindowUse;

/// Seconds that this thread has spent in collectives, waiting for other ranks or moving bytes.
[[nodiscard]] double seconds_inside_collectives();

/// Source of a transport's staging memory, which charges it to the category `communication`. The memory lives as long
/// as the pointer. The default is unaccounted heap memory.
struct StagingSource {
  std::function<std::shared_ptr<std::byte[]>(std::size_t bytes)> allocate;
  /// Charges memory that a transport maps itself (shared segments) while the token lives.
  std::function<std::shared_ptr<void>(std::size_t bytes)> charge;
};

/// Observers of every collective of a rank. All members may be absent; those given must outlive the collectives.
struct Services {
  Counters* counters = nullptr;
  mpi::FlightRecorder* recorder = nullptr;
  mpi::Deadline deadline{};
  StagingSource staging{};
};

/// The collectives of one group on one lane. Calls block the calling thread, which is the lane's, until this rank's
/// part is done; all ranks of the group make the same calls in the same order. Every call is counted and has a
/// deadline, on every transport. Reductions sum in rank order: the results are bitwise equal on every transport, for
/// every owner and for any size of the staging buffers.
class Collectives {
 public:
  /// traffic_name: the group's name in the counters; lane_name: used in messages, such as "shard/gather".
  Collectives(std::unique_ptr<Transport> transport, std::string traffic_name, std::string lane_name, Services services);
  Collectives(Collectives&&) noexcept;
  Collectives& operator=(Collectives&&) = delete;
  ~Collectives();

  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;
  /// "mpi", "shared_memory", "recording", "paced mpi": for the banner and for tests.
  [[nodiscard]] std::string transport_name() const;

  /// Gathers every rank's shard of `shard_elements` into `whole` [size * shard_elements], in rank order.
  /// In place when shard == whole + rank * shard_elements; otherwise they must not overlap.
  void all_gather(const void* shard, void* whole, std::int64_t shard_elements, DType type);

  /// Sums `whole` [size * shard_elements], fp32, over the ranks, in rank order. Writes this rank's part to `shard`
  /// [shard_elements], fp32, or adds it when `accumulate` is set. wire: fp32, or bf16, which rounds every term to bf16
  /// and sums in fp32. shard may be this rank's part of `whole` itself (without accumulate); otherwise they must not
  /// overlap.
  void reduce_scatter(const float* whole, float* shard, std::int64_t shard_elements, DType wire, bool accumulate);

  /// Sends sent[r] elements of `out` to every rank r, including this one, and receives received[r] of it into `in`:
  /// both are in rank order without gaps and do not overlap. Counts may differ between any two ranks and be 0; sent[r]
  /// here is received[rank] there. Elements sent to other ranks are counted.
  void all_to_all(const void* out, std::span<const std::int64_t> sent, void* in, std::span<const std::int64_t> received,
                  DType type);

  /// Sums `data` [elements], fp32, over the ranks, in rank order, in place; any count. All ranks get the same bits.
  /// wire: fp32, or bf16, which sends terms and sums rounded to bf16.
  void all_reduce(float* data, std::int64_t elements, DType wire);

  /// Sums a few fp64 values over the ranks, in rank order: the same bits on all ranks. For losses, norms and counts.
  void sum(std::span<double> values);
  /// Every rank's word, by rank.
  [[nodiscard]] std::vector<std::uint64_t> gather_words(std::uint64_t mine);
  /// Copies root's bytes to all ranks; the same size everywhere.
  void broadcast(std::span<std::byte> bytes, int root);
  /// Returns after every rank has called it.
  void barrier();
  /// Transport::add_window, uncounted: sets up a mapping and transfers no data.
  bool add_window(const at::Tensor& memory, WindowUse use);
  /// Transport::common_memory, uncounted.
  [[nodiscard]] at::Tensor common_memory(std::int64_t elements, DType type);

  // Between two ranks of the group; the others do not call. Not every transport has them: shared memory has not.

  /// Sends `bytes` to `peer`; returns when `data` may be used again. Messages from one rank to another are received in
  /// the order in which they were sent.
  void send(const void* data, Bytes bytes, int peer);
  /// Receives `bytes` from `peer`. Not counted: its sender counts them.
  void receive(void* data, Bytes bytes, int peer);

 private:
  template <class Body>
  void run(const char* operation, Bytes bytes, Body&& body);
  template <class Body>
  void run_uncounted(const char* operation, Bytes bytes, Body&& body);

  std::unique_ptr<Transport> transport_;
  std::string traffic_name_;
  Services services_;
  std::unique_ptr<mpi::FlightRecorder> own_recorder_;  // when the services bring none: the deadline needs one
  mpi::FlightLane* flight_;
  std::unique_ptr<AllReduce> all_reduce_;
};

/// Transport that `make_collectives` uses.
enum class TransportChoice {
  automatic,      ///< shared memory if the group is on one node, else MPI
  mpi,            ///< always MPI
  shared_memory,  ///< throws EnvironmentError unless the group is on one node
};

/// Transport of `communicator`, which must outlive it: for groups that the mesh does not name. Otherwise as
/// `make_collectives`.
[[nodiscard]] std::unique_ptr<Transport> make_transport(const mpi::Communicator& communicator,
                                                        const StagingSource& staging,
                                                        TransportChoice choice = TransportChoice::automatic,
                                                        std::optional<Bytes> staging_bytes = {});

/// The collectives of `communicator`, which must outlive them. Collective over it. staging_bytes bounds the staging
/// memory of this rank (absent: a few MiB, by transport). Warns, on rank 0, if shared memory was possible but not
/// available.
[[nodiscard]] std::unique_ptr<Collectives> make_collectives(const mpi::Communicator& communicator, mesh::Group group,
                                                            schedule::Lane lane, const Services& services,
                                                            TransportChoice choice = TransportChoice::automatic,
                                                            std::optional<Bytes> staging_bytes = {});

}  // namespace trireme::comm
