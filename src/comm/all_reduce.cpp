// SPDX-License-Identifier: Apache-2.0
#include "comm/all_reduce.hpp"

#include <algorithm>

#include "comm/staging.hpp"
#include "comm/sum.hpp"

namespace trireme::comm {
namespace {

constexpr std::int64_t packed_elements = 1 << 20;  // of a bf16 all-reduce at a time

Parts equal_parts(std::int64_t total, int ranks) { return {.total = total, .part = (total + ranks - 1) / ranks}; }

}  // namespace

void AllReduce::operator()(Transport& transport, const StagingSource& staging, float* data, std::int64_t elements,
                           DType wire, mpi::Wait& wait) {
  const int rank = transport.rank();
  if (wire == DType::fp32) {
    const Parts parts = equal_parts(elements, transport.size());
    float* const mine = data + parts.begin(rank);
    transport.reduce_scatter(data, mine, parts, wire, false, wait);
    const Parts bytes{.total = 4 * parts.total, .part = 4 * parts.part};
    transport.all_gather(reinterpret_cast<const std::byte*>(mine), reinterpret_cast<std::byte*>(data), bytes, wait);
    return;
  }
  if (!packed_) packed_ = allocate_staging(staging, packed_elements * sizeof(Bf16));
  auto* const packed = reinterpret_cast<Bf16*>(packed_.get());
  for (std::int64_t first = 0; first < elements; first += packed_elements) {
    const Parts parts = equal_parts(std::min(packed_elements, elements - first), transport.size());
    float* const block = data + first;
    float* const mine = block + parts.begin(rank);
    transport.reduce_scatter(block, mine, parts, wire, false, wait);
    round_to_bf16(mine, packed + parts.begin(rank), parts.length(rank));
    const Parts bytes{.total = 2 * parts.total, .part = 2 * parts.part};
    transport.all_gather(packed_.get() + bytes.begin(rank), packed_.get(), bytes, wait);
    widen(packed, block, parts.total);
  }
}

}  // namespace trireme::comm
