// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/matrix.hpp"

/// The kernels of mixtures of experts, as in launchers.hpp. N tokens, E experts, k of them for each token.
namespace trireme::kernels::cuda {

/// Experts whose scores and counts have room in a block's shared memory.
constexpr int most_experts = 1024;
/// Elements of a choice that a block sorts by expert.
constexpr int sorted_chunk = 1024;

/// model::Experts, as kernels read it.
struct Router {
  int count = 0, per_token = 0, groups = 1, groups_kept = 1;
  bool sigmoid = false, normalized = true;
  double scale = 1;
};

/// bias: [E] or null. experts: [N, k].
void choose_experts(const float* logits, std::int64_t tokens, const float* bias, const Router& router,
                    std::int32_t* experts);
void expert_weights(const float* logits, const std::int32_t* experts, std::int64_t tokens, const Router& router,
                    float* weights);

/// N tokens, the first of which is number `first` of sequences of `length` tokens that follow each other.
struct TokensOfSequences {
  std::int64_t tokens, length, first;
};
/// loads: [sequences, E], how often the tokens chose each expert in each sequence.
void sequence_loads(const std::int32_t* experts, const TokensOfSequences& of, std::int64_t sequences,
                    const Router& router, float* loads);
/// loads: those of all tokens of each sequence, on all ranks; null if balance is 0. losses: [2, N], balance and
/// z of each token; null if both scales are 0.
struct RouterBackward {
  const float *d_weights, *logits;
  const std::int32_t* experts;
  const float* loads;
  TokensOfSequences of;
  Router router;
  double balance, z;
  float* d_logits;
  double* losses;
};
void router_backward(const RouterBackward& arguments);

/// The rows of `choices` elements of a choice, sorted by expert: begin [E + 1], choice [choices], place [choices].
/// before: workspace [chunks of sorted_chunk, E].
void sort_rows(const std::int32_t* experts, std::int64_t choices, int count, std::int32_t* before, std::int32_t* begin,
               std::int32_t* choice, std::int32_t* place);

template <class T>
void gather_rows(Matrix<const T> x, const std::int32_t* choice, std::int64_t per_token, Matrix<T> out);
/// residual.data may be null.
template <class T>
void sum_rows(Matrix<const T> values, const std::int32_t* place, std::int64_t per_token, Matrix<const T> residual,
              Matrix<T> out);
template <class T>
void scale_rows(Matrix<const T> values, const float* weights, const std::int32_t* choice, Matrix<T> out);
template <class T>
void weight_gradients(Matrix<const T> d_scaled, Matrix<const T> values, const std::int32_t* choice, float* out);

/// Rows from_begin[s] on of `from` are rows to_begin[s] on of `to`, for each of some segments, whose rows follow each
/// other in `to`.
template <class T>
void move_segments(Matrix<const T> from, const std::int32_t* from_begin, const std::int32_t* to_begin, int segments,
                   Matrix<T> to);

}  // namespace trireme::kernels::cuda
