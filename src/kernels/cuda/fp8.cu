// SPDX-License-Identifier: Apache-2.0
//
// Operands of fp8 products: bytes and their scales. Where a product sums down the columns of a matrix the bytes are
// written transposed, since _scaled_mm reads both operands along the summed dimension.
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/launchers.hpp"
#ifdef __CUDACC__
#include <cuda_fp8.h>
#endif

namespace trireme::kernels::cuda {
namespace {

struct Largest {
  __device__ std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const { return a > b ? a : b; }
};

/// The code of the nearest value, ties to even. v: not beyond the largest one, or NaN.
template <Fp8Type type>
__device__ inline std::uint8_t fp8_code(float v) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
  __trap();  // missing_fp8_capability: such GPUs are refused
  return 0;
#elif defined(__CUDA_ARCH__)
  return __nv_cvt_float_to_fp8(v, __NV_SATFINITE, type == Fp8Type::e4m3 ? __NV_E4M3 : __NV_E5M2);
#else
  constexpr Fp8Format format = fp8_format(type);
  constexpr int dropped = 23 - format.mantissa_bits;
  const std::uint32_t bits = magnitude_bits(v), sign = (std::bit_cast<std::uint32_t>(v) >> 24) & 0x80U;
  if (bits > 0x7f800000U) return static_cast<std::uint8_t>(sign | 0x7fU);
  const float size = std::bit_cast<float>(bits);
  // Below the least normal value all are equally far apart: by the last bit of this number.
  constexpr float shifter = power_of_two(format.least_exponent + dropped);
  if (size < power_of_two(format.least_exponent))
    return static_cast<std::uint8_t>(
        sign | (std::bit_cast<std::uint32_t>(size + shifter) - std::bit_cast<std::uint32_t>(shifter)));
  const std::uint32_t even = bits + ((1U << (dropped - 1)) - 1) + ((bits >> dropped) & 1U);
  return static_cast<std::uint8_t>(
      sign | ((even >> dropped) - (static_cast<std::uint32_t>(format.least_exponent + 126) << format.mantissa_bits)));
#endif
}

/// n neighbours of a row by their scale.
template <Fp8Type type, int n, class T>
__device__ inline void write_codes(const T* from, std::uint8_t* to, float inverse) {
  const auto x = load<n>(from);
  Pack<std::uint8_t, n> codes;
  for (int k = 0; k < n; ++k) codes.at[k] = fp8_code<type>(static_cast<float>(x.at[k]) * inverse);
  store<n>(to, codes);
}

/// A block has a row. own: the row has a separate scale, which is written; else all have the first one.
template <Fp8Type type, int n, class T>
__global__ void quantize_rows_kernel(Matrix<const T> x, bool own, float* scales, std::uint8_t* codes) {
  __shared__ std::uint32_t scratch[32];
  const std::int64_t row = blockIdx.x;
  const T* from = x.data + row * x.stride;
  float scale = 0;
  if (own) {
    std::uint32_t most = 0;
    for (std::int64_t i = static_cast<std::int64_t>(threadIdx.x) * n; i < x.width; i += blockDim.x * n) {
      const auto values = load<n>(from + i);
      for (int k = 0; k < n; ++k) most = Largest{}(most, magnitude_bits(static_cast<float>(values.at[k])));
    }
    scale = fp8_scale(fp8_scale_byte(block_reduce(most, Largest{}, scratch), type));
    if (threadIdx.x == 0) scales[row] = scale;
  } else {
    scale = scales[0];
  }
  const float inverse = 1.0F / scale;
  for (std::int64_t i = static_cast<std::int64_t>(threadIdx.x) * n; i < x.width; i += blockDim.x * n)
    write_codes<type, n>(from + i, codes + row * x.width + i, inverse);
}

/// Index of the scale of block `block` of row `row` for _scaled_mm: tiles of 128 rows and 4 blocks, with r, r + 32, r +
/// 64 and r + 96 adjacent in a tile row (cuBLAS, "1D block scaling factors layout"). tiles: of 4 blocks in a row.
__device__ inline std::int64_t mx_scale_at(std::int64_t row, std::int64_t block, std::int64_t tiles) {
  return ((row / 128) * tiles + block / 4) * 512 + (row % 32) * 16 + (row % 128) / 32 * 4 + block % 4;
}

/// blockIdx.x: a row; neighbouring threads share a block of 32 elements, n each.
template <Fp8Type type, int n, class T>
__global__ void quantize_mx_rows_kernel(Matrix<const T> x, std::int64_t tiles, std::uint8_t* scales,
                                        std::uint8_t* codes) {
  constexpr int sharing = static_cast<int>(mx_block) / n;
  const std::int64_t row = blockIdx.x;
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * n;
  const bool inside = i < x.width;
  const T* from = x.data + row * x.stride + i;
  std::uint32_t most = 0;
  if (inside) {
    const auto values = load<n>(from);
    for (int k = 0; k < n; ++k) most = Largest{}(most, magnitude_bits(static_cast<float>(values.at[k])));
  }
  for (int step = sharing / 2; step > 0; step /= 2) most = Largest{}(most, from_lane(most, step));
  if (!inside) return;
  const std::uint32_t byte = fp8_scale_byte(most, type);
  write_codes<type, n>(from, codes + row * x.width + i, 1.0F / fp8_scale(byte));
  if (threadIdx.x % sharing == 0) scales[mx_scale_at(row, i / mx_block, tiles)] = static_cast<std::uint8_t>(byte);
}

/// A thread has 32 rows of n columns, selected by blockIdx.y: they are in rows of the transposed matrix one after the
/// other. mx: those of a column share a scale. Else stride 1: every column has one; 0: all have the first one.
template <Fp8Type type, bool mx, int n, class T>
__global__ void quantize_columns_kernel(Matrix<const T> x, const float* scales, int stride, std::int64_t tiles,
                                        std::uint8_t* mx_scales, std::uint8_t* codes) {
  constexpr int rows = static_cast<int>(mx_block);
  const std::int64_t first_column = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * n;
  if (first_column >= x.width) return;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.y) * rows;
  const int count = x.rows - first < rows ? static_cast<int>(x.rows - first) : rows;
  Pack<T, n> values[rows];
  for (int r = 0; r < rows; ++r) values[r] = load<n>(x.data + (first + (r < count ? r : 0)) * x.stride + first_column);
  for (int c = 0; c < n; ++c) {
    const std::int64_t column = first_column + c;
    float scale = 0;
    if (mx) {
      std::uint32_t most = 0;
      for (int r = 0; r < rows; ++r) most = Largest{}(most, magnitude_bits(static_cast<float>(values[r].at[c])));
      const std::uint32_t byte = fp8_scale_byte(most, type);
      scale = fp8_scale(byte);
      mx_scales[mx_scale_at(column, blockIdx.y, tiles)] = static_cast<std::uint8_t>(byte);
    } else {
      scale = scales[column * stride];
    }
    const float inverse = 1.0F / scale;
    std::uint8_t* to = codes + column * x.rows + first;
    for (int half = 0; half < 2; ++half) {  // the number of rows is a multiple of 16
      Pack<std::uint8_t, 16> out;
      for (int k = 0; k < 16; ++k)
        out.at[k] = fp8_code<type>(static_cast<float>(values[half * 16 + k].at[c]) * inverse);
      if (half * 16 < count) store<16>(to + half * 16, out);
    }
  }
}

/// blockIdx.x: columns, n a thread; blockIdx.y: a chunk of rows.
template <int n, class T>
__global__ void column_maxima_kernel(Matrix<const T> x, std::int64_t chunk_rows, std::uint32_t* maxima) {
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * n;
  if (column >= x.width) return;
  const std::int64_t begin = blockIdx.y * chunk_rows;
  const std::int64_t end = begin + chunk_rows < x.rows ? begin + chunk_rows : x.rows;
  std::uint32_t most[n] = {};
  for (std::int64_t row = begin; row < end; ++row) {
    const auto values = load<n>(x.data + row * x.stride + column);
    for (int k = 0; k < n; ++k) most[k] = Largest{}(most[k], magnitude_bits(static_cast<float>(values.at[k])));
  }
  for (int k = 0; k < n; ++k) maxima[blockIdx.y * x.width + column + k] = most[k];
}

/// A block has a scale: that of maxima[i], maxima[i + stride], ...
__global__ void scales_kernel(const std::uint32_t* maxima, std::int64_t count, std::int64_t stride, Fp8Type type,
                              float* scales) {
  __shared__ std::uint32_t scratch[32];
  std::uint32_t most = 0;
  for (std::int64_t c = threadIdx.x; c < count; c += blockDim.x)
    most = Largest{}(most, maxima[static_cast<std::int64_t>(blockIdx.x) + c * stride]);
  most = block_reduce(most, Largest{}, scratch);
  if (threadIdx.x == 0) scales[blockIdx.x] = fp8_scale(fp8_scale_byte(most, type));
}

constexpr std::int64_t maxima_rows = 128;  ///< of a chunk

template <Fp8Type type, class T>
void quantize_rows(Matrix<const T> x, bool own, float* scales, std::uint8_t* codes) {
  constexpr int n = whole_pack<T>;
  const auto run = [&](auto kernel, int pack) {
    launch("fp8_quantize_rows", kernel, {.blocks = x.rows, .threads = threads_for(ceil_div(x.width, pack), 256)}, x,
           own, scales, codes);
  };
  fits<n>(x) && fits<n>(codes) ? run(quantize_rows_kernel<type, n, T>, n) : run(quantize_rows_kernel<type, 1, T>, 1);
}

template <Fp8Type type, bool mx, class T>
void quantize_columns(const Fp8Quantize<T>& q, int stride) {
  const std::int64_t tiles = ceil_div(ceil_div(q.x.rows, mx_block), 4);
  const auto run = [&](auto kernel, int n) {
    const int threads = threads_for(ceil_div(q.x.width, n), 128);
    launch("fp8_quantize_columns", kernel,
           {.blocks = ceil_div(ceil_div(q.x.width, n), threads),
            .threads = threads,
            .blocks_y = ceil_div(q.x.rows, mx_block)},
           q.x, q.scales, stride, tiles, q.mx_scales, q.codes);
  };
  fits<2>(q.x) ? run(quantize_columns_kernel<type, mx, 2, T>, 2) : run(quantize_columns_kernel<type, mx, 1, T>, 1);
}

template <Fp8Type type, class T>
void quantize_mx_rows(const Fp8Quantize<T>& q) {
  constexpr int n = whole_pack<T>;
  const auto run = [&](auto kernel, int pack) {
    const std::int64_t packs = q.x.width / pack;
    const int threads = threads_for(packs, 256);
    launch("fp8_quantize_mx_rows", kernel,
           {.blocks = q.x.rows, .threads = threads, .blocks_y = ceil_div(packs, threads)}, q.x,
           ceil_div(q.x.width / mx_block, 4), q.mx_scales, q.codes);
  };
  fits<n>(q.x) && fits<n>(q.codes) ? run(quantize_mx_rows_kernel<type, n, T>, n)
                                   : run(quantize_mx_rows_kernel<type, 1, T>, 1);
}

/// The scales of columns, or with `all` the one of the matrix.
template <Fp8Type type, class T>
void find_scales(const Fp8Quantize<T>& q, bool all) {
  constexpr int n = whole_pack<T>;
  const std::int64_t chunks = fp8_maxima_chunks(q.x.rows), maxima = all ? chunks * q.x.width : chunks;
  const auto run = [&](auto kernel, int pack) {
    const int threads = threads_for(ceil_div(q.x.width, pack), 256);
    launch("fp8_column_maxima", kernel,
           {.blocks = ceil_div(ceil_div(q.x.width, pack), threads), .threads = threads, .blocks_y = chunks}, q.x,
           maxima_rows, q.maxima);
  };
  fits<n>(q.x) ? run(column_maxima_kernel<n, T>, n) : run(column_maxima_kernel<1, T>, 1);
  launch("fp8_scales", scales_kernel, {.blocks = all ? 1 : q.x.width, .threads = threads_for(maxima, all ? 1024 : 32)},
         q.maxima, maxima, all ? std::int64_t{1} : q.x.width, type, q.scales);
}

template <Fp8Type type, class T>
void quantize(const Fp8Quantize<T>& q) {
  if (q.recipe == Fp8::mx) return q.down_columns ? quantize_columns<type, true>(q, 0) : quantize_mx_rows<type>(q);
  const bool all = q.recipe == Fp8::tensorwise;
  if (!all && !q.down_columns) return quantize_rows<type>(q.x, true, q.scales, q.codes);
  find_scales<type>(q, all);
  q.down_columns ? quantize_columns<type, false>(q, all ? 0 : 1) : quantize_rows<type>(q.x, false, q.scales, q.codes);
}

}  // namespace

std::int64_t fp8_maxima_chunks(std::int64_t rows) { return ceil_div(rows, maxima_rows); }

template <class T>
void fp8_quantize(const Fp8Quantize<T>& q) {
  q.type == Fp8Type::e4m3 ? quantize<Fp8Type::e4m3>(q) : quantize<Fp8Type::e5m2>(q);
}

template void fp8_quantize(const Fp8Quantize<float>&);
template void fp8_quantize(const Fp8Quantize<c10::BFloat16>&);

}  // namespace trireme::kernels::cuda
