// SPDX-License-Identifier: Apache-2.0
#include "support/test_transports.hpp"

#include <cstring>
#include <numeric>
#include <thread>

#include "comm/sum.hpp"
#include "trireme/base/error.hpp"
#include "trireme/comm/counters.hpp"
#include "trireme/mpi/flight.hpp"

namespace trireme::comm {

void RecordingTransport::record(const char* operation, std::int64_t items) {
  const std::scoped_lock lock(mutex_);
  calls_.push_back({.operation = operation, .items = items});
}

std::vector<RecordedCall> RecordingTransport::calls() const {
  const std::scoped_lock lock(mutex_);
  return calls_;
}

void RecordingTransport::all_gather(const std::byte* mine, std::byte* whole, Parts bytes, mpi::Wait&) {
  record("all_gather", bytes.total);
  // This rank's part may be short; the others' then repeat its beginning.
  const std::vector<std::byte> part(mine, mine + bytes.length(rank_));
  for (std::int64_t i = 0; i < bytes.total && !part.empty(); ++i)
    whole[i] = part[static_cast<std::size_t>(i % bytes.part) % part.size()];
}

void RecordingTransport::reduce_scatter(const float* whole, float* mine, Parts elements, DType wire, bool accumulate,
                                        mpi::Wait&) {
  record("reduce_scatter", elements.total);
  const float* const own = whole + elements.begin(rank_);
  const std::int64_t length = elements.length(rank_);
  if (wire == DType::fp32) {
    const std::vector<const float*> terms(static_cast<std::size_t>(size_), own);
    sum_terms(std::span<const float* const>(terms), mine, length, accumulate);
    return;
  }
  std::vector<Bf16> rounded(static_cast<std::size_t>(length));
  round_to_bf16(own, rounded.data(), length);
  const std::vector<const Bf16*> terms(static_cast<std::size_t>(size_), rounded.data());
  sum_terms(std::span<const Bf16* const>(terms), mine, length, accumulate);
}

void RecordingTransport::all_to_all(const std::byte* out, std::span<const std::int64_t> sent, std::byte* in,
                                    std::span<const std::int64_t> received, mpi::Wait&) {
  const auto end = sent.begin() + rank_;
  record("all_to_all", std::accumulate(sent.begin(), sent.end(), std::int64_t{0}));
  const std::byte* const mine = out + std::accumulate(sent.begin(), end, std::int64_t{0});
  for (const std::int64_t bytes : received) {
    invariant(bytes == *end, "ranks that hold the same receive the same");
    if (bytes > 0) std::memcpy(in, mine, static_cast<std::size_t>(bytes));
    in += bytes;
  }
}

void RecordingTransport::broadcast(std::span<std::byte> bytes, int, mpi::Wait&) {
  record("broadcast", static_cast<std::int64_t>(bytes.size()));
}

void RecordingTransport::barrier(mpi::Wait&) { record("barrier", 0); }

namespace {

class PacedTransport final : public Transport {
 public:
  PacedTransport(std::unique_ptr<Transport> transport, Pace pace) : transport_(std::move(transport)), pace_(pace) {}
  [[nodiscard]] int rank() const override { return transport_->rank(); }
  [[nodiscard]] int size() const override { return transport_->size(); }
  [[nodiscard]] std::string name() const override { return "paced " + transport_->name(); }

  void all_gather(const std::byte* mine, std::byte* whole, Parts bytes, mpi::Wait& wait) override {
    withhold(scatter_bytes({bytes.part}, size()), [&] { transport_->all_gather(mine, whole, bytes, wait); });
  }
  void reduce_scatter(const float* whole, float* mine, Parts elements, DType wire, bool accumulate,
                      mpi::Wait& wait) override {
    withhold(scatter_bytes({elements.part * size_of(wire)}, size()),
             [&] { transport_->reduce_scatter(whole, mine, elements, wire, accumulate, wait); });
  }
  void all_to_all(const std::byte* out, std::span<const std::int64_t> sent, std::byte* in,
                  std::span<const std::int64_t> received, mpi::Wait& wait) override {
    const std::int64_t kept = sent[static_cast<std::size_t>(rank())];
    withhold({std::accumulate(sent.begin(), sent.end(), std::int64_t{0}) - kept},
             [&] { transport_->all_to_all(out, sent, in, received, wait); });
  }
  void broadcast(std::span<std::byte> bytes, int root, mpi::Wait& wait) override {
    withhold({static_cast<std::int64_t>(bytes.size())}, [&] { transport_->broadcast(bytes, root, wait); });
  }
  void barrier(mpi::Wait& wait) override {
    withhold({0}, [&] { transport_->barrier(wait); });
  }
  void exchange(const std::byte* out, std::byte* in, std::int64_t bytes, int peer, mpi::Wait& wait) override {
    withhold({out != nullptr ? bytes : 0}, [&] { transport_->exchange(out, in, bytes, peer, wait); });
  }

 private:
  template <class Body>
  void withhold(Bytes bytes, Body&& body) {
    const mpi::Clock::time_point began = mpi::Clock::now();
    body();
    const double seconds = pace_.latency_seconds + static_cast<double>(bytes.value) / pace_.bytes_per_second;
    std::this_thread::sleep_until(
        began + std::chrono::duration_cast<mpi::Clock::duration>(std::chrono::duration<double>(seconds)));
  }

  std::unique_ptr<Transport> transport_;
  Pace pace_;
};

}  // namespace

std::unique_ptr<Transport> paced(std::unique_ptr<Transport> transport, Pace pace) {
  return std::make_unique<PacedTransport>(std::move(transport), pace);
}

}  // namespace trireme::comm
