// SPDX-License-Identifier: Apache-2.0
//
// The rows of experts: sorted by a counting sort that keeps the order of tokens, gathered, weighted and summed. Each
// element of a result has one thread: atomics are for integers only.
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/experts/launchers.hpp"

namespace trireme::kernels::cuda {
namespace {

/// blockIdx.x: a chunk of the choice. Writes how often it has each expert.
__global__ void count_kernel(const std::int32_t* experts, std::int64_t choices, int count, std::int32_t* counts) {
  __shared__ int here[most_experts];
  for (int e = static_cast<int>(threadIdx.x); e < count; e += static_cast<int>(blockDim.x)) here[e] = 0;
  __syncthreads();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * sorted_chunk + threadIdx.x;
  if (i < choices) atomicAdd(&here[experts[i]], 1);
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < count; e += static_cast<int>(blockDim.x))
    counts[static_cast<std::int64_t>(blockIdx.x) * count + e] = here[e];
}

/// One block, a thread for each expert: turns counts by chunk into how many are in chunks before.
__global__ void begin_kernel(std::int32_t* counts, std::int64_t chunks, int count, std::int32_t* begin) {
  __shared__ int ends[most_experts];
  const int e = static_cast<int>(threadIdx.x);
  int before = 0;
  if (e < count)
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const int here = counts[chunk * count + e];
      counts[chunk * count + e] = before;
      before += here;
    }
  ends[e] = before;
  __syncthreads();
  for (int step = 1; step < count; step *= 2) {
    const int below = e >= step ? ends[e - step] : 0;
    __syncthreads();
    ends[e] += below;
    __syncthreads();
  }
  if (e >= count) return;
  begin[e + 1] = ends[e];
  if (e == 0) begin[0] = 0;
}

/// blockIdx.x: a chunk of the choice, a thread for each of its elements.
__global__ void place_kernel(const std::int32_t* experts, std::int64_t choices, int count, const std::int32_t* before,
                             const std::int32_t* begin, std::int32_t* choice, std::int32_t* place) {
  __shared__ std::int32_t here[sorted_chunk];
  const int at = static_cast<int>(threadIdx.x);
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * sorted_chunk + at;
  const std::int32_t expert = i < choices ? experts[i] : -1;
  here[at] = expert;
  __syncthreads();
  if (expert < 0) return;
  std::int32_t row = begin[expert] + before[static_cast<std::int64_t>(blockIdx.x) * count + expert];
  for (int other = 0; other < at; ++other) row += here[other] == expert ? 1 : 0;
  choice[row] = static_cast<std::int32_t>(i);
  place[i] = row;
}

/// Rows that a block gathers: their reads are on their way together.
constexpr int gathered_rows = 2;

/// blockIdx.x: some rows of `out`; blockIdx.y: columns. Streaming stores leave room in the cache for the tokens, each
/// of which is read once per chosen expert.
template <class T, int n>
__global__ void gather_rows_kernel(Matrix<const T> x, const std::int32_t* choice, unsigned per_token, Matrix<T> out) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * n;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * gathered_rows;
  if (i >= out.width) return;
  Pack<T, n> packs[gathered_rows];
  for (int r = 0; r < gathered_rows; ++r)
    if (first + r < out.rows)
      packs[r] = load<n>(x.data + static_cast<unsigned>(choice[first + r]) / per_token * x.stride + i);
  for (int r = 0; r < gathered_rows; ++r)
    if (first + r < out.rows) store<n, true>(out.data + (first + r) * out.stride + i, packs[r]);
}

template <class T>
struct SumRows {
  Matrix<const T> values;
  const std::int32_t* place;
  std::int64_t per_token;
  Matrix<const T> residual;
  Matrix<T> out;
  template <int n>
  __device__ void run(std::int64_t token, std::int64_t i) const {
    float sums[n] = {};
    for (std::int64_t j = 0; j < per_token; ++j) {
      const auto value = load<n>(values.data + place[token * per_token + j] * values.stride + i);
      for (int k = 0; k < n; ++k) sums[k] += static_cast<float>(value.at[k]);
    }
    Pack<T, n> to, beside{};
    if (residual.data != nullptr) beside = load<n>(residual.data + token * residual.stride + i);
    for (int k = 0; k < n; ++k)
      to.at[k] = static_cast<T>(residual.data != nullptr ? sums[k] + static_cast<float>(beside.at[k]) : sums[k]);
    store<n>(out.data + token * out.stride + i, to);
  }
};

template <class T>
struct ScaleRows {
  Matrix<const T> values;
  const float* weights;
  const std::int32_t* choice;
  Matrix<T> out;
  template <int n>
  __device__ void run(std::int64_t row, std::int64_t i) const {
    const float factor = weights[choice[row]];
    auto value = load<n>(values.data + row * values.stride + i);
    for (int k = 0; k < n; ++k) value.at[k] = static_cast<T>(factor * static_cast<float>(value.at[k]));
    store<n>(out.data + row * out.stride + i, value);
  }
};

/// blockIdx.x: a row.
template <class T, int n>
__global__ void weight_gradients_kernel(Matrix<const T> d_scaled, Matrix<const T> values, const std::int32_t* choice,
                                        float* out) {
  __shared__ double scratch[32];
  const std::int64_t row = blockIdx.x;
  double sum = 0;
  for (std::int64_t i = static_cast<std::int64_t>(threadIdx.x) * n; i < values.width; i += blockDim.x * n) {
    const auto a = load<n>(values.data + row * values.stride + i);
    const auto b = load<n>(d_scaled.data + row * d_scaled.stride + i);
    float part = 0;
    for (int k = 0; k < n; ++k) part += static_cast<float>(a.at[k]) * static_cast<float>(b.at[k]);
    sum += static_cast<double>(part);
  }
  sum = block_reduce(sum, Sum{}, scratch);
  if (threadIdx.x == 0) out[choice[row]] = static_cast<float>(sum);
}

template <class T>
struct MoveSegments {
  Matrix<const T> from;
  const std::int32_t *from_begin, *to_begin;
  int segments;
  Matrix<T> to;
  template <int n>
  __device__ void run(std::int64_t row, std::int64_t i) const {
    int first = 0;  // the last segment that begins at or before the row
    for (int rest = segments; rest > 1;) {
      const int half = rest / 2;
      if (to_begin[first + half] <= row) first += half;
      rest -= half;
    }
    const std::int64_t source = from_begin[first] + (row - to_begin[first]);
    store<n>(to.data + row * to.stride + i, load<n>(from.data + source * from.stride + i));
  }
};

template <class T, class Body>
void each_element(const char* name, bool whole, const Matrix<T>& out, const Body& body) {
  constexpr int n = whole_pack<T>;
  whole ? for_each_pack<n>(name, out.rows, out.width, body) : for_each_pack<1>(name, out.rows, out.width, body);
}

}  // namespace

void sort_rows(const std::int32_t* experts, std::int64_t choices, int count, std::int32_t* before, std::int32_t* begin,
               std::int32_t* choice, std::int32_t* place) {
  const std::int64_t chunks = ceil_div(choices, sorted_chunk);
  const Grid each{.blocks = chunks, .threads = sorted_chunk};
  launch("count_rows", count_kernel, each, experts, choices, count, before);
  launch("begin_rows", begin_kernel, {.blocks = 1, .threads = threads_for(count, most_experts)}, before, chunks, count,
         begin);
  launch("place_rows", place_kernel, each, experts, choices, count, before, begin, choice, place);
}

template <class T>
void gather_rows(Matrix<const T> x, const std::int32_t* choice, std::int64_t per_token, Matrix<T> out) {
  const auto run = [&](auto kernel, int n) {
    const std::int64_t packs = ceil_div(out.width, n);
    const int threads = threads_for(packs, 256);
    launch("gather_rows", kernel,
           {.blocks = ceil_div(out.rows, gathered_rows), .threads = threads, .blocks_y = ceil_div(packs, threads)}, x,
           choice, static_cast<unsigned>(per_token), out);
  };
  constexpr int n = whole_pack<T>;
  fits<n>(x) && fits<n>(out) ? run(gather_rows_kernel<T, n>, n) : run(gather_rows_kernel<T, 1>, 1);
}

template <class T>
void sum_rows(Matrix<const T> values, const std::int32_t* place, std::int64_t per_token, Matrix<const T> residual,
              Matrix<T> out) {
  constexpr int n = whole_pack<T>;
  each_element("sum_rows", fits<n>(values) && fits<n>(residual) && fits<n>(out), out,
               SumRows<T>{values, place, per_token, residual, out});
}

template <class T>
void scale_rows(Matrix<const T> values, const float* weights, const std::int32_t* choice, Matrix<T> out) {
  constexpr int n = whole_pack<T>;
  each_element("scale_rows", fits<n>(values) && fits<n>(out), out, ScaleRows<T>{values, weights, choice, out});
}

template <class T>
void weight_gradients(Matrix<const T> d_scaled, Matrix<const T> values, const std::int32_t* choice, float* out) {
  const auto run = [&](auto kernel, int n) {
    launch("weight_gradients", kernel, {.blocks = values.rows, .threads = threads_for(ceil_div(values.width, n), 256)},
           d_scaled, values, choice, out);
  };
  constexpr int n = whole_pack<T>;
  fits<n>(d_scaled) && fits<n>(values) ? run(weight_gradients_kernel<T, n>, n) : run(weight_gradients_kernel<T, 1>, 1);
}

template <class T>
void move_segments(Matrix<const T> from, const std::int32_t* from_begin, const std::int32_t* to_begin, int segments,
                   Matrix<T> to) {
  constexpr int n = whole_pack<T>;
  each_element("move_segments", fits<n>(from) && fits<n>(to), to,
               MoveSegments<T>{from, from_begin, to_begin, segments, to});
}

template void gather_rows(Matrix<const float>, const std::int32_t*, std::int64_t, Matrix<float>);
template void sum_rows(Matrix<const float>, const std::int32_t*, std::int64_t, Matrix<const float>, Matrix<float>);
template void scale_rows(Matrix<const float>, const float*, const std::int32_t*, Matrix<float>);
template void weight_gradients(Matrix<const float>, Matrix<const float>, const std::int32_t*, float*);
template void move_segments(Matrix<const float>, const std::int32_t*, const std::int32_t*, int, Matrix<float>);
template void gather_rows(Matrix<const c10::BFloat16>, const std::int32_t*, std::int64_t, Matrix<c10::BFloat16>);
template void sum_rows(Matrix<const c10::BFloat16>, const std::int32_t*, std::int64_t, Matrix<const c10::BFloat16>,
                       Matrix<c10::BFloat16>);
template void scale_rows(Matrix<const c10::BFloat16>, const float*, const std::int32_t*, Matrix<c10::BFloat16>);
template void weight_gradients(Matrix<const c10::BFloat16>, Matrix<const c10::BFloat16>, const std::int32_t*, float*);
template void move_segments(Matrix<const c10::BFloat16>, const std::int32_t*, const std::int32_t*, int,
                            Matrix<c10::BFloat16>);

}  // namespace trireme::kernels::cuda
