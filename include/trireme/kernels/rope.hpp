// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "trireme/config/run_config.hpp"

namespace trireme::kernels {

/// Cosines and sines of the rotary position embedding (Su et al. 2021), one row a position.
struct RopeTable {
  at::Tensor cos;               ///< [positions, width / 2] fp32
  at::Tensor sin;               ///< [positions, width / 2] fp32
  std::int64_t head_dim = 0;    ///< of heads of which only `width` elements turn; 0: all do
  std::int64_t begin = 0;       ///< the first of these in a head
  bool adjacent_pairs = false;  ///< elements 2i and 2i + 1 turn together
};

/// Frequencies theta^(-2i/width), rescaled according to `scaling` as for Hugging Face's rope_type; yarn and longrope
/// also multiply cosines and sines by their attention factor. Angles are computed in fp32 as by Hugging Face, so that
/// imported weights get the same numbers. width: rotated elements of a head, even. length: tokens of the sequence;
/// beyond the original length longrope has other factors, and dynamic another base.
[[nodiscard]] RopeTable rope_table(std::int64_t positions, std::int64_t width, double theta,
                                   const std::optional<config::RopeScaling>& scaling, std::int64_t length = 0);

/// Whether a sequence longer than the original length turns all its positions otherwise.
[[nodiscard]] bool turns_by_length(const std::optional<config::RopeScaling>& scaling);

/// inverse: by the negative angles, the gradient of forward; with an attention factor not its inverse.
enum class Rotation { forward, inverse };

/// Rotates each head of `x` in place by its position's angles: pairs (i, i + width/2), the rotate-half form of
/// Hugging Face, or adjacent ones. x: [B*T, heads * head_dim] fp32 or bf16, rows may be apart; position = row mod
/// seq_len.
void rotate(const at::Tensor& x, const RopeTable& table, std::int64_t seq_len, Rotation direction);

}  // namespace trireme::kernels
