// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/collectives.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>
#include <vector>

#include "comm/all_reduce.hpp"
#include "trireme/base/error.hpp"
#include "trireme/comm/counters.hpp"
#include "trireme/comm/transport.hpp"
#include "trireme/mpi/flight.hpp"
#include "trireme/mpi/wait.hpp"

namespace trireme::comm {
namespace {

thread_local double waited = 0;  // seconds

}  // namespace

Collectives::Collectives(std::unique_ptr<Transport> transport, std::string traffic_name, std::string lane_name,
                         Services services)
    : transport_(std::move(transport)),
      traffic_name_(std::move(traffic_name)),
      services_(std::move(services)),
      all_reduce_(std::make_unique<AllReduce>()) {
  if (services_.recorder == nullptr) {
    own_recorder_ = std::make_unique<mpi::FlightRecorder>();
    services_.recorder = own_recorder_.get();
  }
  flight_ = &services_.recorder->add_lane(lane_name);
}

Collectives::Collectives(Collectives&&) noexcept = default;
// A transport may still watch operations in progress and report them to the recorder.
Collectives::~Collectives() { transport_.reset(); }

int Collectives::rank() const { return transport_->rank(); }
int Collectives::size() const { return transport_->size(); }
std::string Collectives::transport_name() const { return transport_->name(); }

double seconds_inside_collectives() { return waited; }

template <class Body>
void Collectives::run_uncounted(const char* operation, Bytes bytes, Body&& body) {
  mpi::Wait wait(flight_->begin(operation, bytes), services_.deadline, *services_.recorder);
  if (size() > 1) body(wait);
  if (size() == 1 || !transport_->ends_later(*flight_, wait.operation(), services_.deadline, *services_.recorder))
    flight_->finish();
  waited += std::chrono::duration<double>(mpi::Clock::now() - wait.operation().started).count();
}

template <class Body>
void Collectives::run(const char* operation, Bytes bytes, Body&& body) {
  run_uncounted(operation, bytes, std::forward<Body>(body));
  if (services_.counters != nullptr) services_.counters->add(traffic_name_, operation, bytes);
}

void Collectives::all_gather(const void* shard, void* whole, std::int64_t shard_elements, DType type) {
  const Parts bytes{.total = shard_elements * size_of(type) * size(), .part = shard_elements * size_of(type)};
  run("all_gather", scatter_bytes({bytes.part}, size()), [&](mpi::Wait& wait) {
    transport_->all_gather(static_cast<const std::byte*>(shard), static_cast<std::byte*>(whole), bytes, wait);
  });
  if (size() == 1 && shard != whole && bytes.total > 0)
    transport_->copy_alone(static_cast<const std::byte*>(shard), static_cast<std::byte*>(whole), bytes.total);
}

void Collectives::reduce_scatter(const float* whole, float* shard, std::int64_t shard_elements, DType wire,
                                 bool accumulate) {
  const Parts elements{.total = shard_elements * size(), .part = shard_elements};
  invariant(!accumulate || shard != whole + elements.begin(rank()), "a shard within the whole is not accumulated into");
  run("reduce_scatter", scatter_bytes({shard_elements * size_of(wire)}, size()),
      [&](mpi::Wait& wait) { transport_->reduce_scatter(whole, shard, elements, wire, accumulate, wait); });
  if (size() == 1 && shard != whole) transport_->sum_alone(whole, shard, shard_elements, accumulate);
}

void Collectives::all_to_all(const void* out, std::span<const std::int64_t> sent, void* in,
                             std::span<const std::int64_t> received, DType type) {
  const auto ranks = static_cast<std::size_t>(size()), own = static_cast<std::size_t>(rank());
  invariant(sent.size() == ranks && received.size() == ranks && sent[own] == received[own],
            "an all-to-all has a count for every rank, and one of what a rank keeps");
  const auto in_bytes = [&](std::span<const std::int64_t> counts) {
    std::vector<std::int64_t> bytes(counts.begin(), counts.end());
    for (std::int64_t& count : bytes) count *= size_of(type);
    return bytes;
  };
  const std::vector<std::int64_t> going = in_bytes(sent), coming = in_bytes(received);
  const auto* const from = static_cast<const std::byte*>(out);
  auto* const to = static_cast<std::byte*>(in);
  run("all_to_all", {std::accumulate(going.begin(), going.end(), std::int64_t{0}) - going[own]},
      [&](mpi::Wait& wait) { transport_->all_to_all(from, going, to, coming, wait); });
  if (size() == 1 && going[own] > 0) transport_->copy_alone(from, to, going[own]);
}

void Collectives::all_reduce(float* data, std::int64_t elements, DType wire) {
  run("all_reduce", all_reduce_bytes(elements, size_of(wire), size()), [&](mpi::Wait& wait) {
    if (!transport_->all_reduce(data, elements, wire, wait))
      (*all_reduce_)(*transport_, services_.staging, data, elements, wire, wait);
  });
}

void Collectives::sum(std::span<double> values) {
  const std::size_t bytes = values.size_bytes();
  run("sum", scatter_bytes({static_cast<std::int64_t>(bytes)}, size()), [&](mpi::Wait& wait) {
    std::vector<double> terms(values.size() * static_cast<std::size_t>(size()));
    transport_->gather_values(
        reinterpret_cast<const std::byte*>(values.data()), reinterpret_cast<std::byte*>(terms.data()),
        {.total = static_cast<std::int64_t>(bytes) * size(), .part = static_cast<std::int64_t>(bytes)}, wait);
    for (std::size_t i = 0; i < values.size(); ++i) {
      double total = terms[i];
      for (std::size_t j = i + values.size(); j < terms.size(); j += values.size()) total += terms[j];
      values[i] = total;
    }
  });
}

std::vector<std::uint64_t> Collectives::gather_words(std::uint64_t mine) {
  std::vector<std::uint64_t> words(static_cast<std::size_t>(size()), mine);
  run("gather_words", scatter_bytes({8}, size()), [&](mpi::Wait& wait) {
    transport_->gather_values(reinterpret_cast<const std::byte*>(&mine), reinterpret_cast<std::byte*>(words.data()),
                              {.total = std::int64_t{8} * size(), .part = 8}, wait);
  });
  return words;
}

void Collectives::broadcast(std::span<std::byte> bytes, int root) {
  const auto total = static_cast<std::int64_t>(bytes.size());
  run("broadcast", {size() > 1 ? total : 0}, [&](mpi::Wait& wait) { transport_->broadcast(bytes, root, wait); });
}

bool Collectives::add_window(const at::Tensor& memory, WindowUse use) {
  bool shared = true;
  run_uncounted("add_window", {0}, [&](mpi::Wait& wait) { shared = transport_->add_window(memory, use, wait); });
  return shared;
}

at::Tensor Collectives::common_memory(std::int64_t elements, DType type) {
  at::Tensor memory;
  run_uncounted("common_memory", {0},
                [&](mpi::Wait& wait) { memory = transport_->common_memory(elements, type, wait); });
  return memory;
}

void Collectives::barrier() {
  run("barrier", {0}, [&](mpi::Wait& wait) { transport_->barrier(wait); });
}

void Collectives::send(const void* data, Bytes bytes, int peer) {
  run("send", bytes, [&](mpi::Wait& wait) {
    transport_->exchange(static_cast<const std::byte*>(data), nullptr, bytes.value, peer, wait);
  });
}

void Collectives::receive(void* data, Bytes bytes, int peer) {
  run_uncounted("receive", bytes, [&](mpi::Wait& wait) {
    transport_->exchange(nullptr, static_cast<std::byte*>(data), bytes.value, peer, wait);
  });
}

}  // namespace trireme::comm
