// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "trireme/comm/transport.hpp"

namespace trireme::comm {

/// One call as RecordingTransport saw it.
struct RecordedCall {
  std::string operation;  ///< "all_gather", "reduce_scatter", "all_to_all", "broadcast", "barrier"
  std::int64_t
      items;  ///< of the whole: bytes (all_gather, broadcast; sent by an all_to_all) or elements (reduce_scatter)
  friend bool operator==(const RecordedCall&, const RecordedCall&) = default;
};

/// A fake for one process: behaves as rank `rank` of `size` ranks that all hold what this one holds, and records the
/// calls.
class RecordingTransport final : public Transport {
 public:
  RecordingTransport(int rank, int size) : rank_(rank), size_(size) {}
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::string name() const override { return "recording"; }
  void all_gather(const std::byte* mine, std::byte* whole, Parts bytes, mpi::Wait& wait) override;
  void reduce_scatter(const float* whole, float* mine, Parts elements, DType wire, bool accumulate,
                      mpi::Wait& wait) override;
  void all_to_all(const std::byte* out, std::span<const std::int64_t> sent, std::byte* in,
                  std::span<const std::int64_t> received, mpi::Wait& wait) override;
  void broadcast(std::span<std::byte> bytes, int root, mpi::Wait& wait) override;
  void barrier(mpi::Wait& wait) override;

  [[nodiscard]] std::vector<RecordedCall> calls() const;

 private:
  void record(const char* operation, std::int64_t items);
  int rank_;
  int size_;
  mutable std::mutex mutex_;
  std::vector<RecordedCall> calls_;
};

/// The speed of a paced transport's link.
struct Pace {
  double bytes_per_second = 1e9;  ///< what one rank sends
  double latency_seconds = 0;
};

/// A real transport whose calls return no sooner than latency + (what a bandwidth-optimal algorithm sends) / bandwidth
/// after they began. The rest of that time is slept, without using the CPU: so overlap can be measured where ranks
/// share cores.
[[nodiscard]] std::unique_ptr<Transport> paced(std::unique_ptr<Transport> transport, Pace pace);

}  // namespace trireme::comm
