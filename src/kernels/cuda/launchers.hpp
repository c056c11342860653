// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/matrix.hpp"
#include "trireme/base/fp8.hpp"
#include "trireme/kernels/fp8_format.hpp"

/// Interface of the .cu files for the .cpp files, which use tensors: T is float or c10::BFloat16. Pointers are device
/// pointers. Everything runs on the current stream and returns at once.
namespace trireme::kernels::cuda {

/// The most chunks of rows that the sums of a norm's backward are cut into.
[[nodiscard]] std::int64_t norm_chunks(std::int64_t rows);
/// Rows of workspace [chunks, width] that column_sums needs.
[[nodiscard]] std::int64_t column_chunks(std::int64_t rows, std::int64_t width, int element_size);

/// grad[d] (+)= the sum over chunks of partial[chunk, d], in a fixed order. stride: floats between chunks.
void sum_chunks(const float* partial, std::int64_t chunks, std::int64_t stride, std::int64_t width, float* grad,
                bool accumulate);

/// Writes partial [column_chunks, width]: sums of rows.
template <class T>
void column_sums(Matrix<const T> from, float* partial);

/// bias: null for RMSNorm. again: statistics are read and not written. rstd: [rows]; mean: [rows], null for RMSNorm.
template <class T>
struct NormForward {
  Matrix<const T> x;
  const T* weight;
  const T* bias;
  float eps;
  Matrix<T> y;
  float *mean, *rstd;
  bool again;
  float offset;  ///< added to the weight, in RMSNorm
};
template <class T>
void norm_forward(const NormForward<T>& arguments);

/// residual.data may be null. partial: [norm_chunks, width] for RMSNorm, [norm_chunks, 2, width] with a mean (weights,
/// then biases).
template <class T>
struct NormBackward {
  Matrix<const T> d_y, x;
  const T* weight;
  const float *mean, *rstd;
  Matrix<const T> residual;
  Matrix<T> d_x;
  float* partial;
  float offset;  ///< added to the weight, in RMSNorm
};
/// Returns the chunks that it wrote.
template <class T>
std::int64_t norm_backward(const NormBackward<T>& arguments);

/// Heads of queries and of keys, adjacent in rows, each normed separately. rstd: [heads, rows].
template <class T>
struct HeadNorm {
  Matrix<const T> x;
  const T *q_weight, *k_weight;
  float eps, offset;
  Matrix<T> y;
  float* rstd;
  bool again;
  std::int64_t q_heads, heads, head_dim;
};
/// False if it has no kernel for such heads: nothing was done.
template <class T>
[[nodiscard]] bool head_norm_forward(const HeadNorm<T>& arguments);

/// partial: [2, head_norm_chunks, head_dim], of the weight of queries and of that of keys.
template <class T>
struct HeadNormBackward {
  Matrix<const T> d_y, x;
  const T *q_weight, *k_weight;
  float offset;
  const float* rstd;
  Matrix<T> d_x;
  float* partial;
  std::int64_t q_heads, heads, head_dim;
};
/// The most blocks that sum for a weight.
inline constexpr std::int64_t head_norm_chunks = 528;
template <class T>
[[nodiscard]] bool head_norm_backward(const HeadNormBackward<T>& arguments);

/// The widest rows that norm_backward takes.
[[nodiscard]] std::int64_t widest_norm();

/// cos, sin: [positions, half]; head_dim: at least 2 half. adjacent: pairs are neighbours. sign: 1 forward, -1 inverse.
template <class T>
struct RotateHeads {
  Matrix<T> x;
  const float *cos, *sin;
  std::int64_t half, head_dim, seq_len;
  bool adjacent;
  float sign;
};
template <class T>
void rotate(const RotateHeads<T>& arguments);

/// Heads of one kind as a library lays out their gradients, and where these go.
template <class T>
struct HeadGradients {
  const T* from;
  std::int64_t sequence_stride, head_stride, token_stride;
  Matrix<T> to;            ///< [B*T, heads * head_dim]
  const float *cos, *sin;  ///< [positions, half], by which the heads were rotated
  std::int64_t half;       ///< 0: they were not
};
/// Gradients by queries, keys and values, side by side or not, rotated back.
template <class T>
struct PlacedGradients {
  HeadGradients<T> q, k, v;
  std::int64_t head_dim, seq_len;
  bool adjacent;  ///< pairs are neighbours
};
template <class T>
void place_gradients(const PlacedGradients<T>& arguments);

template <class T>
void swiglu(Matrix<const T> gate_up, Matrix<T> out);
template <class T>
void swiglu_backward(Matrix<const T> d_out, Matrix<const T> gate_up, Matrix<T> d_gate_up, Matrix<T> out);
template <class T>
void geglu_tanh(Matrix<const T> gate_up, Matrix<T> out);
template <class T>
void geglu_tanh_backward(Matrix<const T> d_out, Matrix<const T> gate_up, Matrix<T> d_gate_up, Matrix<T> out);
template <class T>
void gelu_tanh(Matrix<const T> x, Matrix<T> out);
template <class T>
void gelu_tanh_backward(Matrix<const T> d_out, Matrix<const T> x, Matrix<T> d_x, Matrix<T> out);
template <class T>
void add_bias(Matrix<T> y, const T* bias);

template <class From, class To>
void cast(const From* from, To* to, std::int64_t count);
template <class From>
void add_into(const From* from, float* to, std::int64_t count);

/// An id outside [first, first + table.rows) gives zeros if `part`, and stops the grid otherwise.
template <class T>
void embedding_gather(const std::int32_t* ids, std::int64_t first, bool part, Matrix<const T> table, Matrix<T> out);
/// Pieces that the rows of embedding_scatter_add are cut into.
[[nodiscard]] std::int64_t scatter_chunks(std::int64_t rows);
/// sorted: ids in ascending order; position: index of each of them, equal ids in ascending order. partial: workspace
/// [scatter_chunks, 2, width].
template <class T>
void embedding_scatter_add(const std::int32_t* sorted, const std::int64_t* position, std::int64_t first, bool part,
                           Matrix<const T> d_out, Matrix<float> grad, float* partial);

/// Chunks of rows with separate maxima.
[[nodiscard]] std::int64_t fp8_maxima_chunks(std::int64_t rows);
/// The codes of x [R, C], rows side by side; down_columns: of its transpose, R a multiple of 16. scales: [R], down
/// columns [C], of all [1]; with mx mx_scales, in the layout of _scaled_mm. maxima: workspace [fp8_maxima_chunks, C],
/// of scales down columns and of all.
template <class T>
struct Fp8Quantize {
  Matrix<const T> x;
  Fp8 recipe;
  Fp8Type type;
  bool down_columns;
  std::uint8_t* codes;
  float* scales;
  std::uint8_t* mx_scales;
  std::uint32_t* maxima;
};
template <class T>
void fp8_quantize(const Fp8Quantize<T>& arguments);

/// losses: [2, rows], by LossSums. Turns logits into their gradient where `gradient`.
template <class T>
void cross_entropy(Matrix<T> logits, const std::int32_t* targets, bool gradient, float scale, float z_loss,
                   double* losses);
/// The same with gradients, by blocks that read each row from memory once. Returns false, without computing, unless
/// rows consist of whole packs.
template <class T>
[[nodiscard]] bool cross_entropy_in_shared(Matrix<T> logits, const std::int32_t* targets, float scale, float z_loss,
                                           double* losses);
/// statistics: [rows, 3].
template <class T>
void vocabulary_statistics(Matrix<const T> logits, const std::int32_t* targets, std::int64_t first, float* statistics);
/// gathered: [ranks, count, 3]; softmax: [count, 2]; losses: [2, count].
void combine_statistics(const float* gathered, std::int64_t ranks, const std::int32_t* targets, std::int64_t count,
                        float* softmax, float z_loss, double* losses);
template <class T>
void cross_entropy_gradient_part(Matrix<T> logits, const std::int32_t* targets, std::int64_t first,
                                 const float* softmax, float scale, float z_loss);
/// into[0] += the sum of values, in a fixed order.
void add_sum(const double* values, std::int64_t count, double* into);

}  // namespace trireme::kernels::cuda
