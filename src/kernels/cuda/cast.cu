// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/launchers.hpp"

namespace trireme::kernels::cuda {
namespace {

template <class From, class To>
struct Cast {
  const From* from;
  To* to;
  template <int n>
  __device__ void run(std::int64_t i) const {
    const auto x = load<n>(from + i);
    Pack<To, n> y;
    for (int k = 0; k < n; ++k) y.at[k] = static_cast<To>(static_cast<float>(x.at[k]));
    store<n>(to + i, y);
  }
};

template <class From>
struct AddInto {
  const From* from;
  float* to;
  template <int n>
  __device__ void run(std::int64_t i) const {
    const auto x = load<n>(from + i);
    auto y = load<n>(to + i);
    for (int k = 0; k < n; ++k) y.at[k] += static_cast<float>(x.at[k]);
    store<n>(to + i, y);
  }
};

constexpr int n = 8;  // 16 bytes of bf16, two packs of fp32

template <class Body>
void run(const char* name, bool whole, std::int64_t count, const Body& body) {
  whole ? for_range<n>(name, count, body) : for_range<1>(name, count, body);
}

}  // namespace

template <class From, class To>
void cast(const From* from, To* to, std::int64_t count) {
  run("cast", fits<n>(from) && fits<n>(to), count, Cast<From, To>{from, to});
}

template <class From>
void add_into(const From* from, float* to, std::int64_t count) {
  run("add_into", fits<n>(from) && fits<n>(to), count, AddInto<From>{from, to});
}

template void cast(const float*, float*, std::int64_t);
template void cast(const float*, c10::BFloat16*, std::int64_t);
template void cast(const c10::BFloat16*, float*, std::int64_t);
template void cast(const c10::BFloat16*, c10::BFloat16*, std::int64_t);
template void add_into(const float*, float*, std::int64_t);
template void add_into(const c10::BFloat16*, float*, std::int64_t);

}  // namespace trireme::kernels::cuda
