// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "trireme/model/model.hpp"

/// RoPE written a second time, from its papers and Hugging Face's modeling_rope_utils.py, in fp64.
namespace trireme::test {

/// Rotated elements of a head.
inline std::int64_t turning(const model::Sizes& s) {
  return s.head_dim * static_cast<std::int64_t>(100 * s.decoder.rotary_part) / 100;
}

/// Rows of a yarn table by its definition (Peng et al. 2023, equations 18 to 23), in fp64.
inline at::Tensor inverse_frequencies(model::Sizes s, std::int64_t tokens) {
  const std::int64_t d = turning(s);
  if (s.rope_scaling && s.rope_scaling->type == config::RopeType::dynamic) {  // as transformers 5.23 computes it
    const auto original = static_cast<double>(s.rope_scaling->original_max_position_embeddings);
    const double length = std::max(static_cast<double>(tokens), original), factor = s.rope_scaling->factor;
    s.rope_theta *= std::pow(factor * length / original - (factor - 1), static_cast<double>(d) / (d - 2));
    s.rope_scaling.reset();
  }
  const at::Tensor plain = at::pow(s.rope_theta, -at::arange(0, d, 2, at::kFloat) / d).to(at::kDouble);
  if (!s.rope_scaling) return plain;
  const config::RopeScaling& scaling = *s.rope_scaling;
  if (scaling.type == config::RopeType::linear) return plain / scaling.factor;
  if (scaling.type == config::RopeType::longrope) return plain / at::tensor(scaling.long_factor, at::kDouble);
  const auto pair = [&](double rotations) {
    return static_cast<double>(d) *
           std::log(static_cast<double>(scaling.original_max_position_embeddings) /
                    (2 * std::numbers::pi * rotations)) /
           (2 * std::log(s.rope_theta));
  };
  double low = pair(scaling.beta_fast), high = pair(scaling.beta_slow);
  if (scaling.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, static_cast<double>(d - 1));
  const at::Tensor interpolated = ((at::arange(0, d / 2, at::kDouble) - low) / (high - low)).clamp(0, 1);
  return plain / scaling.factor * interpolated + plain * (1 - interpolated);
}

inline at::Tensor rope(const at::Tensor& whole, model::Sizes s, bool slides) {
  if (s.decoder.local_rope && slides) s.rope_theta = s.rope_local_theta, s.rope_scaling.reset();
  const at::Tensor x = whole.slice(-1, 0, turning(s));
  const at::Tensor frequencies = inverse_frequencies(s, x.size(2)).to(at::kFloat);
  const at::Tensor half = at::outer(at::arange(x.size(2), at::kFloat), frequencies).to(at::kDouble);
  const bool neighbours = s.decoder.adjacent_pairs;
  const at::Tensor angle = neighbours ? half.repeat_interleave(2, -1) : at::cat({half, half}, -1);
  double factor = 1;
  if (s.rope_scaling && s.rope_scaling->type == config::RopeType::longrope)
    factor = std::sqrt(1 + std::log(s.rope_scaling->factor) /
                               std::log(static_cast<double>(s.rope_scaling->original_max_position_embeddings)));
  if (s.rope_scaling && s.rope_scaling->type == config::RopeType::yarn)
    factor = s.rope_scaling->attention_factor > 0 ? s.rope_scaling->attention_factor
                                                  : 1 + 0.1 * std::log(s.rope_scaling->factor);
  const at::Tensor pairs = x.unflatten(-1, {-1, 2}), first = x.slice(-1, 0, x.size(-1) / 2);
  const at::Tensor rotated = neighbours ? at::stack({-pairs.select(-1, 1), pairs.select(-1, 0)}, -1).flatten(-2)
                                        : at::cat({-x.slice(-1, x.size(-1) / 2), first}, -1);
  return at::cat({factor * (x * angle.cos().to(x.scalar_type()) + rotated * angle.sin().to(x.scalar_type())),
                  whole.slice(-1, turning(s))},
                 -1);
}

/// Queries [B, heads, T, head_dim] of a decoder that scales them by their position.
inline at::Tensor scaled_by_position(const at::Tensor& q, const model::Sizes& s) {
  if (!s.rope_scaling || s.rope_scaling->llama_4_scaling_beta == 0) return q;
  const auto original = static_cast<double>(s.rope_scaling->original_max_position_embeddings);
  const at::Tensor periods = at::floor(at::arange(q.size(2), at::kDouble) / original);
  return q * (1 + s.rope_scaling->llama_4_scaling_beta * at::log1p(periods)).unsqueeze(1).to(q.scalar_type());
}

}  // namespace trireme::test
