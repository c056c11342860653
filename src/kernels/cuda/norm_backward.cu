// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/launchers.hpp"

namespace trireme::kernels::cuda {
namespace {

constexpr int most_norm_threads = 512;

/// Blocks of `threads` that a multiprocessor holds: some read while others wait for their sums. 0: as many as there are
/// registers for. On an H200 rows of one pack a thread were fastest with as many blocks as fit without a spill, and
/// nothing read ahead; wider rows read the next one ahead.
template <class T, int n, int held, int threads, bool centred>
inline constexpr int least_blocks = n != whole_pack<T> || held > 1 ? 1
                                    : threads <= 256               ? 4
                                    : threads <= 384 && !centred   ? 3
                                                                   : 2;
template <class T, int n, int held, bool centred>
inline constexpr bool reads_ahead = n == whole_pack<T>&& held == 2 && !centred;

/// A thread's packs of a row; the residual is read with them if there are registers for it.
template <class T, int n, int held>
struct RowPacks {
  static constexpr bool whole = held <= 2;
  Pack<T, n> g[held], x[held], residual[whole ? held : 1];

  /// first, step: of this thread's columns.
  __device__ void load_row(const NormBackward<T>& a, std::int64_t row, std::int64_t first, std::int64_t step) {
    for (int h = 0; h < held; ++h) {
      const std::int64_t column = first + h * step;
      if (column >= a.x.width) break;
      g[h] = load<n>(a.d_y.data + row * a.d_y.stride + column);
      x[h] = load<n>(a.x.data + row * a.x.stride + column);
      if constexpr (whole)
        if (a.residual.data != nullptr) residual[h] = load<n>(a.residual.data + row * a.residual.stride + column);
    }
  }
  [[nodiscard]] __device__ Pack<T, n> residual_at(const NormBackward<T>& a, std::int64_t row, int h,
                                                  std::int64_t column) const {
    if constexpr (whole) return residual[h];
    return load<n>(a.residual.data + row * a.residual.stride + column);
  }
};

/// One block a chunk of rows. A thread has `held` packs of columns, the same in every row: it reads all of a row before
/// the row's only barrier, keeps it in registers between the two passes and the columns' sums between rows, so no two
/// threads ever write to one place. d_x may be d_y or residual.
template <class T, int n, int held, int threads, bool centred>
__global__ void __launch_bounds__(threads, (least_blocks<T, n, held, threads, centred>))
    backward_kernel(NormBackward<T> a, std::int64_t chunk_rows) {
  __shared__ Two scratch[2][32];  // of even rows and odd ones
  const std::int64_t width = a.x.width;
  const auto inverse_width = 1.0F / static_cast<float>(width);
  const std::int64_t begin = blockIdx.x * chunk_rows;
  const std::int64_t end = begin + chunk_rows < a.x.rows ? begin + chunk_rows : a.x.rows;
  const std::int64_t first = static_cast<std::int64_t>(threadIdx.x) * n,
                     step = static_cast<std::int64_t>(blockDim.x) * n;
  float weights[held][n] = {}, biases[centred ? held : 1][n] = {};
  const bool beside = a.residual.data != nullptr;
  Pack<T, n> only_weight{};  // of one pack; registers for more are short
  if (held == 1 && first < width) only_weight = load<n>(a.weight + first);
  const auto weight_at = [&](std::int64_t column) { return held == 1 ? only_weight : load<n>(a.weight + column); };
  constexpr bool ahead = reads_ahead<T, n, held, centred>;
  RowPacks<T, n, held> next;
  if constexpr (ahead) next.load_row(a, begin, first, step);
  for (std::int64_t row = begin; row < end; ++row) {
    RowPacks<T, n, held> now;
    if constexpr (ahead) {
      now = next;
      if (row + 1 < end) next.load_row(a, row + 1, first, step);
    } else {
      now.load_row(a, row, first, step);
    }
    const float rstd = a.rstd[row];
    const float mean = centred ? a.mean[row] : 0.0F;
    Two sums{};  // of the upstream gradients through the weight, and of their products with x
    for (int h = 0; h < held; ++h) {
      if (first + h * step >= width) break;
      const auto w = weight_at(first + h * step);
      for (int k = 0; k < n; ++k) {
        const float through = static_cast<float>(now.g[h].at[k]) * (a.offset + static_cast<float>(w.at[k]));
        sums.b += through * (static_cast<float>(now.x[h].at[k]) - mean);
        if constexpr (centred) sums.a += through;
      }
    }
    if constexpr (centred)
      sums = block_reduce_once(sums, Sum{}, scratch[row % 2]);
    else
      sums.b = block_reduce_once(sums.b, Sum{}, &scratch[row % 2][0].a);
    const float average = sums.a * inverse_width;
    const float slope = sums.b * rstd * rstd * inverse_width;
    for (int h = 0; h < held; ++h) {
      if (first + h * step >= width) break;
      const auto w = weight_at(first + h * step);
      Pack<T, n> residual{}, out;
      if (beside) residual = now.residual_at(a, row, h, first + h * step);
      for (int k = 0; k < n; ++k) {
        const float value = static_cast<float>(now.x[h].at[k]) - mean;
        const float upstream = static_cast<float>(now.g[h].at[k]);
        weights[h][k] += upstream * value * rstd;
        if constexpr (centred) biases[h][k] += upstream;
        const float through = rstd * (upstream * (a.offset + static_cast<float>(w.at[k])) - average - value * slope);
        out.at[k] = static_cast<T>(beside ? static_cast<float>(residual.at[k]) + through : through);
      }
      store<n>(a.d_x.data + row * a.d_x.stride + first + h * step, out);
    }
  }
  float* partial = a.partial + blockIdx.x * width * (centred ? 2 : 1);
  for (int h = 0; h < held; ++h) {
    const std::int64_t column = first + h * step;
    for (int k = 0; k < n && column < width; ++k) {
      partial[column + k] = weights[h][k];
      if constexpr (centred) partial[width + column + k] = biases[h][k];
    }
  }
}

/// Rows of a block, where as many blocks as fit at a time share them.
constexpr std::int64_t chunk_rows_of(std::int64_t rows, int blocks_of_multiprocessor) {
  constexpr std::int64_t multiprocessors = 132;  // an H100's or H200's
  return ceil_div(rows, multiprocessors * blocks_of_multiprocessor);
}

template <class T, int n, int held, int most>
std::int64_t run(const NormBackward<T>& a) {
  const int threads = threads_for(ceil_div(ceil_div(a.x.width, n), held), most);
  const auto with = [&](auto kernel, const char* name, int blocks) {
    const std::int64_t chunk_rows = chunk_rows_of(a.x.rows, blocks), chunks = ceil_div(a.x.rows, chunk_rows);
    launch(name, kernel, {.blocks = chunks, .threads = threads}, a, chunk_rows);
    return chunks;
  };
  if (a.mean != nullptr)
    return with(backward_kernel<T, n, held, most, true>, "layer_norm_backward", least_blocks<T, n, held, most, true>);
  return with(backward_kernel<T, n, held, most, false>, "rms_norm_backward", least_blocks<T, n, held, most, false>);
}

/// With no more packs a thread than the rows need, and of one pack with no more threads in the kernel's bounds.
template <class T, int n, int held, int most>
std::int64_t run_with(const NormBackward<T>& a) {
  const std::int64_t packs = ceil_div(a.x.width, n);
  if constexpr (n == whole_pack<T> && held == 1) {
    if (packs <= 256) return run<T, n, 1, 256>(a);
    if (packs <= 384) return run<T, n, 1, 384>(a);
  }
  if constexpr (held < most) {
    if (packs > std::int64_t{most_norm_threads} * held) return run_with<T, n, 2 * held, most>(a);
  }
  return run<T, n, held, most_norm_threads>(a);
}

/// Columns of a thread, so that rows of up to 16384 elements fit with any alignment.
constexpr int most_columns = 32;

template <class T>
bool in_packs(const NormBackward<T>& a) {
  constexpr int n = whole_pack<T>;
  return fits<n>(a.d_y) && fits<n>(a.x) && fits<n>(a.residual) && fits<n>(a.d_x) && fits<n>(a.weight);
}

/// blockIdx.y: queries or keys; blockIdx.x: a chunk of their heads, row by row. `lanes` threads a head, which keep the
/// sums of their columns of the weight's gradient; those of a block are added in order. d_x may be d_y.
template <class T, int lanes>
__global__ void head_backward_kernel(HeadNormBackward<T> a, std::int64_t q_chunk, std::int64_t k_chunk) {
  constexpr int n = whole_pack<T>, threads = 256, groups = threads / lanes;
  __shared__ float sums[threads * n];
  const bool keys = blockIdx.y == 1;
  const auto lane = static_cast<int>(threadIdx.x) % lanes, group = static_cast<int>(threadIdx.x) / lanes;
  const auto heads = static_cast<unsigned>(keys ? a.heads - a.q_heads : a.q_heads);
  const std::int64_t chunk = keys ? k_chunk : q_chunk, begin = blockIdx.x * chunk, all = a.x.rows * heads;
  const std::int64_t end = begin + chunk < all ? begin + chunk : all;
  const bool holds = lane * n < a.head_dim;
  const float inverse_width = 1.0F / static_cast<float>(a.head_dim);
  Pack<T, n> w{};
  if (holds) w = load<n>((keys ? a.k_weight : a.q_weight) + lane * n);
  float weights[n] = {};
  for (std::int64_t first = begin; first < end; first += groups) {  // all of a warp go round as often
    const auto item = static_cast<unsigned>(first + group);
    const bool mine = holds && item < end;
    const unsigned row = item / heads, head = item % heads + (keys ? static_cast<unsigned>(a.q_heads) : 0U);
    const std::int64_t column = head * a.head_dim + lane * n;
    Pack<T, n> g{}, x{};
    float rstd = 0, sum = 0;
    if (mine) {
      g = load<n>(a.d_y.data + row * a.d_y.stride + column);
      x = load<n>(a.x.data + row * a.x.stride + column);
      rstd = a.rstd[head * a.x.rows + row];
    }
    for (int k = 0; k < n; ++k)
      sum += static_cast<float>(g.at[k]) * (a.offset + static_cast<float>(w.at[k])) * static_cast<float>(x.at[k]);
    for (int step = lanes / 2; step > 0; step /= 2) sum += from_lane(sum, step);
    if (!mine) continue;
    const float slope = sum * rstd * rstd * inverse_width;
    Pack<T, n> out;
    for (int k = 0; k < n; ++k) {
      const float upstream = static_cast<float>(g.at[k]), value = static_cast<float>(x.at[k]);
      weights[k] += upstream * value * rstd;
      out.at[k] = static_cast<T>(rstd * (upstream * (a.offset + static_cast<float>(w.at[k])) - value * slope));
    }
    store<n>(a.d_x.data + row * a.d_x.stride + column, out);
  }
  for (int k = 0; k < n; ++k) sums[threadIdx.x * n + k] = weights[k];
  __syncthreads();
  float* const partial = a.partial + (blockIdx.y * gridDim.x + blockIdx.x) * a.head_dim;
  for (std::int64_t column = threadIdx.x; column < a.head_dim; column += threads) {
    float sum = 0;
    for (int g = 0; g < groups; ++g) sum += sums[g * lanes * n + column];
    partial[column] = sum;
  }
}

}  // namespace

template <class T>
bool head_norm_backward(const HeadNormBackward<T>& a) {
  constexpr int n = whole_pack<T>;
  const bool whole = fits<n>(a.d_y) && fits<n>(a.x) && fits<n>(a.d_x) && fits<n>(a.q_weight) && fits<n>(a.k_weight);
  const auto chunk_of = [&](std::int64_t heads) { return ceil_div(a.x.rows * heads, head_norm_chunks); };
  return whole && with_lanes<n>(a.head_dim, [&]<int lanes>() {
           launch("rms_norm_heads_backward", head_backward_kernel<T, lanes>,
                  {.blocks = head_norm_chunks, .threads = 256, .blocks_y = 2}, a, chunk_of(a.q_heads),
                  chunk_of(a.heads - a.q_heads));
         });
}

std::int64_t norm_chunks(std::int64_t rows) { return rows == 0 ? 0 : ceil_div(rows, chunk_rows_of(rows, 4)); }

std::int64_t widest_norm() { return std::int64_t{most_norm_threads} * most_columns; }

template <class T>
std::int64_t norm_backward(const NormBackward<T>& a) {
  if (a.x.rows == 0) return 0;
  if (in_packs(a)) return run_with<T, whole_pack<T>, 1, most_columns / whole_pack<T>>(a);
  return run_with<T, 1, 4, most_columns>(a);
}

template bool head_norm_backward(const HeadNormBackward<float>&);
template bool head_norm_backward(const HeadNormBackward<c10::BFloat16>&);
template std::int64_t norm_backward(const NormBackward<float>&);
template std::int64_t norm_backward(const NormBackward<c10::BFloat16>&);

}  // namespace trireme::kernels::cuda
