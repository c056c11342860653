// SPDX-License-Identifier: Apache-2.0
#include "comm/cuda/terms.hpp"
#include "device/cuda/block.cuh"

namespace trireme::comm::cuda {
namespace {

using namespace device::cuda;
using c10::BFloat16;

struct PackTerms {
  const float* from;
  std::int64_t stride, count;
  BFloat16* to;
  template <int n>
  __device__ void run(std::int64_t rank, std::int64_t i) const {
    const auto x = load<n>(from + rank * stride + i);
    Pack<BFloat16, n> y;
    for (int k = 0; k < n; ++k) y.at[k] = static_cast<BFloat16>(x.at[k]);
    store<n>(to + rank * count + i, y);
  }
};

struct SumTerms {
  const BFloat16* terms;
  std::int64_t ranks, count;
  float* to;
  bool accumulate;
  template <int n>
  __device__ void run(std::int64_t i) const {
    Pack<float, n> sum{};
    auto next = load<n>(terms + i);
    for (std::int64_t r = 0; r < ranks; ++r) {
      const auto term = next;
      if (r + 1 < ranks) next = load<n>(terms + (r + 1) * count + i);
      for (int k = 0; k < n; ++k) sum.at[k] += static_cast<float>(term.at[k]);
    }
    if (accumulate) {
      const auto before = load<n>(to + i);
      for (int k = 0; k < n; ++k) sum.at[k] += before.at[k];
    }
    store<n>(to + i, sum);
  }
};

constexpr int n = whole_pack<BFloat16>;

}  // namespace

void pack_terms(const float* from, std::int64_t ranks, std::int64_t stride, std::int64_t count, BFloat16* to) {
  const PackTerms body{from, stride, count, to};
  const bool whole = fits<n>(from) && fits<n>(to) && stride % n == 0 && count % n == 0;
  whole ? for_each_pack<n>("pack_terms", ranks, count, body) : for_each_pack<1>("pack_terms", ranks, count, body);
}

void sum_terms(const BFloat16* terms, std::int64_t ranks, std::int64_t count, float* to, bool accumulate) {
  const SumTerms body{terms, ranks, count, to, accumulate};
  const bool whole = fits<n>(terms) && fits<n>(to) && count % n == 0;
  whole ? for_range<n>("sum_terms", count, body) : for_range<1>("sum_terms", count, body);
}

}  // namespace trireme::comm::cuda
