// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/launchers.hpp"

namespace trireme::kernels::cuda {
namespace {

/// Packs of a row that a thread keeps in registers. With two of them half as many threads synchronize, and more rows
/// are in flight per multiprocessor.
constexpr int kept = 2;
constexpr int most_forward_threads = 512;

/// One block per row. Packs beyond those in registers are read again for the next pass, from the first-level cache.
template <class T, int n, bool centred>
__global__ void __launch_bounds__(most_forward_threads) forward_kernel(NormForward<T> a) {
  __shared__ float scratch[2][32];
  const std::int64_t row = blockIdx.x;
  const std::int64_t width = a.x.width;
  const std::int64_t first = static_cast<std::int64_t>(threadIdx.x) * n,
                     step = static_cast<std::int64_t>(blockDim.x) * n;
  const T* from = a.x.data + row * a.x.stride;
  T* to = a.y.data + row * a.y.stride;
  const float inverse_width = 1.0F / static_cast<float>(width);
  Pack<T, n> packs[kept];
  for (int h = 0; h < kept; ++h)
    if (first + h * step < width) packs[h] = load<n>(from + first + h * step);
  const auto each_pack = [&](const auto& visit) {  // of this thread
    for (int h = 0; h < kept; ++h)
      if (first + h * step < width) visit(packs[h], first + h * step);
    for (std::int64_t i = first + kept * step; i < width; i += step) visit(load<n>(from + i), i);
  };
  float mean = 0, rstd = 0;
  if (a.again) {
    mean = centred ? a.mean[row] : 0.0F;
    rstd = a.rstd[row];
  } else {
    if constexpr (centred) {
      float sum = 0;
      each_pack([&](const Pack<T, n>& x, std::int64_t) {
        for (int k = 0; k < n; ++k) sum += static_cast<float>(x.at[k]);
      });
      mean = block_reduce_once(sum, Sum{}, scratch[0]) * inverse_width;
    }
    float squares = 0;
    each_pack([&](const Pack<T, n>& x, std::int64_t) {
      for (int k = 0; k < n; ++k) {
        const float v = static_cast<float>(x.at[k]) - mean;
        squares += v * v;
      }
    });
    rstd = 1.0F / sqrtf(block_reduce_once(squares, Sum{}, scratch[1]) * inverse_width + a.eps);
    if (threadIdx.x == 0) {
      a.rstd[row] = rstd;
      if constexpr (centred) a.mean[row] = mean;
    }
  }
  each_pack([&](const Pack<T, n>& x, std::int64_t i) {
    const auto w = load<n>(a.weight + i);
    Pack<T, n> y;
    if constexpr (centred) {
      const auto b = load<n>(a.bias + i);
      for (int k = 0; k < n; ++k)
        y.at[k] = static_cast<T>((static_cast<float>(x.at[k]) - mean) * rstd * static_cast<float>(w.at[k]) +
                                 static_cast<float>(b.at[k]));
    } else {
      for (int k = 0; k < n; ++k)
        y.at[k] = static_cast<T>(static_cast<float>(x.at[k]) * rstd * (a.offset + static_cast<float>(w.at[k])));
    }
    store<n>(to + i, y);
  });
}

template <class T, int n>
void run(const NormForward<T>& a) {
  const Grid grid{.blocks = a.x.rows,
                  .threads = threads_for(ceil_div(ceil_div(a.x.width, n), kept), most_forward_threads)};
  if (a.bias != nullptr)
    launch("layer_norm", forward_kernel<T, n, true>, grid, a);
  else
    launch("rms_norm", forward_kernel<T, n, false>, grid, a);
}

/// `lanes` threads a head, a power of two; heads that are neighbours in a row are so in a warp.
template <class T, int lanes>
__global__ void head_kernel(HeadNorm<T> a) {
  constexpr int n = whole_pack<T>;
  const auto lane = static_cast<int>(threadIdx.x) % lanes;
  const unsigned item = blockIdx.x * (blockDim.x / lanes) + threadIdx.x / lanes;
  const auto heads = static_cast<unsigned>(a.heads);
  const unsigned row = item / heads, head = item % heads;
  const bool here = row < a.x.rows, mine = here && lane * n < a.head_dim;
  const std::int64_t column = head * a.head_dim + lane * n;
  Pack<T, n> x{};
  if (mine) x = load<n>(a.x.data + row * a.x.stride + column);
  float* const known = a.rstd + head * a.x.rows + row;
  float rstd = 0;
  if (a.again) {
    if (here) rstd = *known;
  } else {
    float squares = 0;
    for (int k = 0; k < n; ++k) squares += static_cast<float>(x.at[k]) * static_cast<float>(x.at[k]);
    for (int step = lanes / 2; step > 0; step /= 2) squares += from_lane(squares, step);
    rstd = 1.0F / sqrtf(squares / static_cast<float>(a.head_dim) + a.eps);
    if (here && lane == 0) *known = rstd;
  }
  if (!mine) return;
  const auto w = load<n>((head < a.q_heads ? a.q_weight : a.k_weight) + lane * n);
  Pack<T, n> y;
  for (int k = 0; k < n; ++k)
    y.at[k] = static_cast<T>(static_cast<float>(x.at[k]) * rstd * (a.offset + static_cast<float>(w.at[k])));
  store<n>(a.y.data + row * a.y.stride + column, y);
}

}  // namespace

template <class T>
bool head_norm_forward(const HeadNorm<T>& a) {
  constexpr int n = whole_pack<T>;
  const bool whole = fits<n>(a.x) && fits<n>(a.y) && fits<n>(a.q_weight) && fits<n>(a.k_weight);
  return whole && with_lanes<n>(a.head_dim, [&]<int lanes>() {
           launch("rms_norm_heads", head_kernel<T, lanes>, {.blocks = ceil_div(a.x.rows * a.heads, 256 / lanes)}, a);
         });
}

template <class T>
void norm_forward(const NormForward<T>& a) {
  constexpr int n = whole_pack<T>;
  if (fits<n>(a.x) && fits<n>(a.y) && fits<n>(a.weight) && fits<n>(a.bias))
    run<T, n>(a);
  else
    run<T, 1>(a);
}

template bool head_norm_forward(const HeadNorm<float>&);
template bool head_norm_forward(const HeadNorm<c10::BFloat16>&);
template void norm_forward(const NormForward<float>&);
template void norm_forward(const NormForward<c10::BFloat16>&);

}  // namespace trireme::kernels::cuda
