// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "trireme/config/run_config.hpp"

namespace trireme::kernels {

/// Cosines and sines of the rotary position embedding (Su et al. 2021), one row a position.
struct RopeTable {
  at::Tensor cos;  ///< [positions, head_dim / 2] fp32
  at::Tensor sin;  ///< [positions, head_dim / 2] fp32
};

/// Frequencies theta^(-2i/head_dim), rescaled where `scaling` is given as Hugging Face's rope_type does; yarn also
/// multiplies cosines and sines by its attention factor. Angles are computed in fp32 as Hugging Face does, so that
/// imported weights see the same numbers. head_dim must be even.
[[nodiscard]] RopeTable rope_table(std::int64_t positions, std::int64_t head_dim, double theta,
                                   const std::optional<config::RopeScaling>& scaling);

/// inverse: by the negative angles, the gradient of forward; with an attention factor not its inverse.
enum class Rotation { forward, inverse };

/// Rotates each head of `x` in place by its position's angles: pairs (i, i + head_dim/2), the rotate-half form of
/// Hugging Face. x: [B*T, heads * head_dim] fp32 or bf16,
/// rows may be apart; position = row mod seq_len.
void rotate(const at::Tensor& x, const RopeTable& table, std::int64_t seq_len, Rotation direction);

}  // namespace trireme::kernels
