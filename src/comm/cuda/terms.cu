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

/// Zeros where `from` has ended.
struct PackWhole {
  const float* from;
  std::int64_t elements;
  BFloat16* to;
  template <int n>
  __device__ void run(std::int64_t i) const {
    Pack<BFloat16, n> y{};
    if (i + n <= elements) {
      const auto x = load<n>(from + i);
      for (int k = 0; k < n; ++k) y.at[k] = static_cast<BFloat16>(x.at[k]);
    } else {
      for (int k = 0; k < n && i + k < elements; ++k) y.at[k] = static_cast<BFloat16>(from[i + k]);
    }
    store<n>(to + i, y);
  }
};

template <class T>
struct SumTerms {
  const BFloat16* terms;
  std::int64_t ranks, count;
  T* to;
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
      for (int k = 0; k < n; ++k) sum.at[k] += static_cast<float>(before.at[k]);
    }
    Pack<T, n> y;
    for (int k = 0; k < n; ++k) y.at[k] = static_cast<T>(sum.at[k]);
    store<n>(to + i, y);
  }
};

struct Widen {
  const BFloat16* from;
  float* to;
  template <int n>
  __device__ void run(std::int64_t i) const {
    const auto x = load<n>(from + i);
    Pack<float, n> y;
    for (int k = 0; k < n; ++k) y.at[k] = static_cast<float>(x.at[k]);
    store<n>(to + i, y);
  }
};

constexpr int n = whole_pack<BFloat16>;

}  // namespace

void pack_terms(const float* from, std::int64_t ranks, std::int64_t stride, std::int64_t count, BFloat16* to) {
  const PackTerms body{from, stride, count, to};
  const bool whole = fits<n>(from) && fits<n>(to) && stride % n == 0 && count % n == 0;
  whole ? for_each_pack<n>("pack_terms", ranks, count, body) : for_each_pack<1>("pack_terms", ranks, count, body);
}

namespace {

template <class T>
void sum(const SumTerms<T>& body) {
  const bool whole = fits<n>(body.terms) && fits<n>(body.to) && body.count % n == 0;
  whole ? for_range<n>("sum_terms", body.count, body) : for_range<1>("sum_terms", body.count, body);
}

}  // namespace

void sum_terms(const BFloat16* terms, std::int64_t ranks, std::int64_t count, float* to, bool accumulate) {
  sum(SumTerms<float>{terms, ranks, count, to, accumulate});
}

void sum_terms(const BFloat16* terms, std::int64_t ranks, std::int64_t count, BFloat16* to) {
  sum(SumTerms<BFloat16>{terms, ranks, count, to, false});
}

void pack_whole(const float* from, std::int64_t elements, std::int64_t padded, BFloat16* to) {
  const PackWhole body{from, elements, to};
  const bool whole = fits<n>(from) && fits<n>(to) && padded % n == 0;
  whole ? for_range<n>("pack_whole", padded, body) : for_range<1>("pack_whole", padded, body);
}

void widen(const BFloat16* from, std::int64_t elements, float* to) {
  const Widen body{from, to};
  const bool whole = fits<n>(from) && fits<n>(to);
  whole ? for_range<n>("widen", elements, body) : for_range<1>("widen", elements, body);
}

}  // namespace trireme::comm::cuda
