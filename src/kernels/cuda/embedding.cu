// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/launchers.hpp"

namespace trireme::kernels::cuda {
namespace {

constexpr const char* outside = "embedding: a token id is outside the vocabulary";

template <class T>
struct Gather {
  const std::int32_t* ids;
  std::int64_t first;
  bool part;
  Matrix<const T> table;
  Matrix<T> out;
  template <int n>
  __device__ void run(std::int64_t row, std::int64_t i) const {
    const std::int64_t id = ids[row] - first;
    const bool here = id >= 0 && id < table.rows;
    expect(here || part, outside);
    Pack<T, n> value{};
    if (here) value = load<n>(table.data + id * table.stride + i);
    store<n>(out.data + row * out.stride + i, value);
  }
};

/// Places of the sorted ids that a block works on. A long run of one id is cut, so that many blocks sum it.
constexpr int chunk = 32;

/// The ids of a microbatch in ascending order, and the gradient rows.
template <class T>
struct Scatter {
  const std::int32_t* sorted;
  const std::int64_t* position;
  std::int64_t first;
  bool part;
  Matrix<const T> d_out;
  Matrix<float> grad;
  float* partial;  ///< [chunks, 2, width]: sums of the runs that go on from the chunk before, and into the next one

  /// Null if the row is another rank's.
  [[nodiscard]] __device__ float* at(std::int64_t row, std::int64_t i) const {
    return row >= 0 && row < grad.rows ? grad.data + row * grad.stride + i : nullptr;
  }
  [[nodiscard]] __device__ bool goes_on(std::int64_t place) const {  // from the place before
    return place > 0 && place < d_out.rows && sorted[place - 1] == sorted[place];
  }
  template <int n>
  __device__ void add(const Pack<float, n>& sum, std::int32_t id, std::int64_t i) const {
    float* to = at(id - first, i);
    expect(to != nullptr || part, outside);
    if (to == nullptr) return;
    auto value = load<n>(to);
    for (int k = 0; k < n; ++k) value.at[k] += sum.at[k];
    store<n>(to, value);
  }
};

/// blockIdx.x: a chunk of places; blockIdx.y: columns. Sums the runs of the chunk, each in order.
template <class T, int n>
__global__ void scatter_kernel(Scatter<T> a) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * n;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * chunk;
  const std::int64_t end = begin + chunk < a.d_out.rows ? begin + chunk : a.d_out.rows;
  if (i >= a.grad.width) return;
  float* const partial = a.partial + static_cast<std::int64_t>(blockIdx.x) * 2 * a.grad.width + i;
  Pack<float, n> sum{};
  bool from_before = a.goes_on(begin);
  const auto row = [&](std::int64_t place) {  // two are on their way
    return place < end ? load<n>(a.d_out.data + a.position[place] * a.d_out.stride + i) : Pack<T, n>{};
  };
  auto next = row(begin), after = row(begin + 1);
  for (std::int64_t place = begin; place < end; ++place) {
    const auto x = next;
    next = after;
    after = row(place + 2);
    for (int k = 0; k < n; ++k) sum.at[k] += static_cast<float>(x.at[k]);
    const bool into_next = a.goes_on(place + 1);
    if (into_next && place + 1 < end) continue;
    if (from_before)
      store<n>(partial, sum);
    else if (into_next)
      store<n>(partial + a.grad.width, sum);
    else
      a.add(sum, a.sorted[place], i);
    sum = {};
    from_before = false;
  }
}

/// The same grid: the chunk in which a cut run begins adds its sums, in order.
template <class T, int n>
__global__ void scatter_cut_kernel(Scatter<T> a) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * n;
  const std::int64_t end = (static_cast<std::int64_t>(blockIdx.x) + 1) * chunk;
  if (i >= a.grad.width || !a.goes_on(end)) return;
  const std::int32_t id = a.sorted[end];
  if (a.sorted[end - chunk] == id && a.goes_on(end - chunk)) return;  // it began before this chunk
  const float* partial = a.partial + static_cast<std::int64_t>(blockIdx.x) * 2 * a.grad.width + i;
  auto sum = load<n>(partial + a.grad.width);
  for (std::int64_t place = end; a.goes_on(place) && a.sorted[place] == id; place += chunk) {
    partial += 2 * a.grad.width;
    const auto x = load<n>(partial);
    for (int k = 0; k < n; ++k) sum.at[k] += x.at[k];
  }
  a.add(sum, id, i);
}

template <int n, class T>
void scatter(const Scatter<T>& a) {
  const std::int64_t packs = ceil_div(a.grad.width, n);
  const int threads = threads_for(packs, 256);
  const Grid grid{.blocks = ceil_div(a.d_out.rows, chunk), .threads = threads, .blocks_y = ceil_div(packs, threads)};
  launch("embedding_scatter_add", scatter_kernel<T, n>, grid, a);
  launch("embedding_scatter_add", scatter_cut_kernel<T, n>, grid, a);
}

}  // namespace

template <class T>
void embedding_gather(const std::int32_t* ids, std::int64_t first, bool part, Matrix<const T> table, Matrix<T> out) {
  constexpr int n = whole_pack<T>;
  const Gather<T> body{ids, first, part, table, out};
  fits<n>(table) && fits<n>(out) ? for_each_pack<n>("embedding_gather", out.rows, out.width, body)
                                 : for_each_pack<1>("embedding_gather", out.rows, out.width, body);
}

std::int64_t scatter_chunks(std::int64_t rows) { return ceil_div(rows, chunk); }

template <class T>
void embedding_scatter_add(const std::int32_t* sorted, const std::int64_t* position, std::int64_t first, bool part,
                           Matrix<const T> d_out, Matrix<float> grad, float* partial) {
  constexpr int n = whole_pack<T>;
  const bool whole = fits<n>(d_out) && fits<n>(grad) && fits<n>(partial);
  whole ? scatter<n>(Scatter<T>{sorted, position, first, part, d_out, grad, partial})
        : scatter<1>(Scatter<T>{sorted, position, first, part, d_out, grad, partial});
}

template void embedding_gather(const std::int32_t*, std::int64_t, bool, Matrix<const float>, Matrix<float>);
template void embedding_scatter_add(const std::int32_t*, const std::int64_t*, std::int64_t, bool, Matrix<const float>,
                                    Matrix<float>, float*);
template void embedding_gather(const std::int32_t*, std::int64_t, bool, Matrix<const c10::BFloat16>,
                               Matrix<c10::BFloat16>);
template void embedding_scatter_add(const std::int32_t*, const std::int64_t*, std::int64_t, bool,
                                    Matrix<const c10::BFloat16>, Matrix<float>, float*);

}  // namespace trireme::kernels::cuda
