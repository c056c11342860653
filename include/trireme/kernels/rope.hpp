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

/// Frequencies theta^(-2i/head_dim), rescaled as Llama 3.1 does where `scaling` is given (Hugging Face's rope_type
/// "llama3"). Angles are computed in fp32 as Hugging Face does, so that imported weights see the same numbers. head_dim
/// must be even.
[[nodiscard]] RopeTable rope_table(std::int64_t positions, std::int64_t head_dim, double theta,
                                   const std::optional<config::RopeScaling>& scaling);

enum class Rotation { forward, inverse };

/// Rotates each head of `x` in place by its position's angles: pairs (i, i + head_dim/2), the rotate-half form of
/// Hugging Face. The inverse rotation is also the gradient of the forward one. x: [B*T, heads * head_dim] fp32 or bf16,
/// rows may be apart; position = row mod seq_len.
void rotate(const at::Tensor& x, const RopeTable& table, std::int64_t seq_len, Rotation direction);

}  // namespace trireme::kernels
