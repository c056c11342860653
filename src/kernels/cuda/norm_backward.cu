// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/launchers.hpp"

namespace trireme::kernels::cuda {
namespace {

constexpr int most_norm_threads = 512;

/// One block a chunk of rows. A thread has `held` packs of columns, the same in every row: it keeps a row's values in
/// registers between the two passes and the columns' sums between rows, so no two threads ever write to one place. d_x
/// may be d_y or residual.
template <class T, int n, int held, bool centred>
__global__ void __launch_bounds__(most_norm_threads) backward_kernel(NormBackward<T> a, std::int64_t chunk_rows) {
  __shared__ float scratch[32];
  __shared__ Two scratch_two[32];
  const std::int64_t width = a.x.width;
  const auto inverse_width = 1.0F / static_cast<float>(width);
  const std::int64_t begin = blockIdx.x * chunk_rows;
  const std::int64_t end = begin + chunk_rows < a.x.rows ? begin + chunk_rows : a.x.rows;
  const auto column = [&](int h) {
    return (static_cast<std::int64_t>(h) * blockDim.x + threadIdx.x) * n;  // of this thread's pack h
  };
  float weights[held][n] = {}, biases[centred ? held : 1][n] = {};
  for (std::int64_t row = begin; row < end; ++row) {
    const float rstd = a.rstd[row];
    const float mean = centred ? a.mean[row] : 0.0F;
    Pack<T, n> g[held], x[held];
    float sum = 0, dot = 0;
    for (int h = 0; h < held; ++h) {
      if (column(h) >= width) break;
      g[h] = load<n>(a.d_y.data + row * a.d_y.stride + column(h));
      x[h] = load<n>(a.x.data + row * a.x.stride + column(h));
      const auto w = load<n>(a.weight + column(h));
      for (int k = 0; k < n; ++k) {
        const float through = static_cast<float>(g[h].at[k]) * (a.offset + static_cast<float>(w.at[k]));
        dot += through * (static_cast<float>(x[h].at[k]) - mean);
        if constexpr (centred) sum += through;
      }
    }
    if constexpr (centred) {
      const Two both = block_reduce(Two{sum, dot}, Sum{}, scratch_two);
      sum = both.a * inverse_width;
      dot = both.b;
    } else {
      dot = block_reduce(dot, Sum{}, scratch);
    }
    const float slope = dot * rstd * rstd * inverse_width;
    for (int h = 0; h < held; ++h) {
      if (column(h) >= width) break;
      const auto w = load<n>(a.weight + column(h));
      Pack<T, n> residual{};
      if (a.residual.data != nullptr) residual = load<n>(a.residual.data + row * a.residual.stride + column(h));
      Pack<T, n> out;
      for (int k = 0; k < n; ++k) {
        const float value = static_cast<float>(x[h].at[k]) - mean;
        const float upstream = static_cast<float>(g[h].at[k]);
        weights[h][k] += upstream * value * rstd;
        if constexpr (centred) biases[h][k] += upstream;
        const float through = rstd * (upstream * (a.offset + static_cast<float>(w.at[k])) - sum - value * slope);
        out.at[k] = static_cast<T>(a.residual.data != nullptr ? static_cast<float>(residual.at[k]) + through : through);
      }
      store<n>(a.d_x.data + row * a.d_x.stride + column(h), out);
    }
  }
  float* partial = a.partial + blockIdx.x * width * (centred ? 2 : 1);
  for (int h = 0; h < held; ++h) {
    for (int k = 0; k < n && column(h) < width; ++k) {
      partial[column(h) + k] = weights[h][k];
      if constexpr (centred) partial[width + column(h) + k] = biases[h][k];
    }
  }
}

constexpr std::int64_t chunk_rows_of(std::int64_t rows) {
  constexpr std::int64_t wanted_chunks = 528;  // four blocks for each of an H100's or H200's 132 multiprocessors
  return ceil_div(rows, wanted_chunks);
}

template <class T, int n, int held>
void run(const NormBackward<T>& a) {
  const Grid grid{.blocks = norm_chunks(a.x.rows),
                  .threads = threads_for(ceil_div(ceil_div(a.x.width, n), held), most_norm_threads)};
  const std::int64_t chunk_rows = chunk_rows_of(a.x.rows);
  if (a.mean != nullptr)
    launch("layer_norm_backward", backward_kernel<T, n, held, true>, grid, a, chunk_rows);
  else
    launch("rms_norm_backward", backward_kernel<T, n, held, false>, grid, a, chunk_rows);
}

/// With no more packs a thread than the rows need.
template <class T, int n, int held, int most>
void run_with(const NormBackward<T>& a) {
  if constexpr (held < most) {
    if (a.x.width > std::int64_t{most_norm_threads} * n * held) return run_with<T, n, 2 * held, most>(a);
  }
  run<T, n, held>(a);
}

/// Of a thread, so that rows of up to 16384 elements fit whatever their alignment.
constexpr int most_columns = 32;

template <class T>
bool in_packs(const NormBackward<T>& a) {
  constexpr int n = whole_pack<T>;
  return fits<n>(a.d_y) && fits<n>(a.x) && fits<n>(a.residual) && fits<n>(a.d_x) && fits<n>(a.weight);
}

}  // namespace

std::int64_t norm_chunks(std::int64_t rows) { return rows == 0 ? 0 : ceil_div(rows, chunk_rows_of(rows)); }

std::int64_t widest_norm() { return std::int64_t{most_norm_threads} * most_columns; }

template <class T>
void norm_backward(const NormBackward<T>& a) {
  if (in_packs(a))
    run_with<T, whole_pack<T>, 1, most_columns / whole_pack<T>>(a);
  else
    run_with<T, 1, 4, most_columns>(a);
}

template void norm_backward(const NormBackward<float>&);
template void norm_backward(const NormBackward<c10::BFloat16>&);

}  // namespace trireme::kernels::cuda
