// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/model/model.hpp"

/// Computations of a kind of stage: the executor and the planner read them in place of kinds.
namespace trireme::model {

enum class Work : std::uint16_t {
  lookup = 1,          ///< rows of a table
  norm = 2,            ///< of the residual stream or of the output of a branch, as one stage
  sublayer_norms = 4,  ///< those that the decoder has before and behind a branch
  norm_of_heads = 8,   ///< of queries and keys, as one stage
  projection = 16,     ///< to queries, keys and values
  scores = 32,         ///< attention
  activation = 64,     ///< of an MLP
  router = 128,        ///< with shared experts
  experts = 256,
  rows = 512,  ///< the sum of a token's rows
  logits = 1024
};
[[nodiscard]] constexpr std::uint16_t operator|(Work a, Work b) {
  return static_cast<std::uint16_t>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
[[nodiscard]] constexpr std::uint16_t operator|(std::uint16_t a, Work b) { return a | static_cast<std::uint16_t>(b); }

[[nodiscard]] constexpr std::uint16_t work_of(StageKind kind) {
  switch (kind) {
    case StageKind::embedding:
    case StageKind::positions: return static_cast<std::uint16_t>(Work::lookup);
    case StageKind::attention: return Work::sublayer_norms | Work::projection | Work::scores;
    case StageKind::mlp: return Work::sublayer_norms | Work::activation;
    case StageKind::head: return Work::norm | Work::logits;
    case StageKind::norm:
    case StageKind::post_norm: return static_cast<std::uint16_t>(Work::norm);
    case StageKind::attention_branch: return Work::projection | Work::scores;
    case StageKind::mlp_branch: return static_cast<std::uint16_t>(Work::activation);
    case StageKind::projection: return static_cast<std::uint16_t>(Work::projection);
    case StageKind::qk_norm: return static_cast<std::uint16_t>(Work::norm_of_heads);
    case StageKind::attend:
    case StageKind::core_attention: return static_cast<std::uint16_t>(Work::scores);
    case StageKind::input:
    case StageKind::output: return 0;
    case StageKind::logits: return static_cast<std::uint16_t>(Work::logits);
    case StageKind::moe: return Work::sublayer_norms | Work::router | Work::experts | Work::rows;
    case StageKind::route: return Work::sublayer_norms | Work::router;
    case StageKind::experts: return static_cast<std::uint16_t>(Work::experts);
    case StageKind::merge: return static_cast<std::uint16_t>(Work::rows);
  }
  return 0;
}

/// Whether a stage contains a computation.
[[nodiscard]] constexpr bool does(const Stage& stage, Work work) {
  return (work_of(stage.kind) & static_cast<std::uint16_t>(work)) != 0;
}

/// Whether the rows of a stage come from the ranks of the expert axis.
[[nodiscard]] constexpr bool receives_rows(const Stage& stage) { return stage.enter == Exchange::dispatch; }
/// Whether a stage only sums rows: the choice that it reads is kept by its router, two stages before it.
[[nodiscard]] constexpr bool only_sums_rows(const Stage& stage) {
  return work_of(stage.kind) == static_cast<std::uint16_t>(Work::rows);
}
inline constexpr int stages_from_router = 2;

/// Whether the gradients of a stage's weights read the output of the norm before its branch, or follow at once those of
/// a stage that does.
[[nodiscard]] constexpr bool is_in_branch(const Stage& stage) {
  return is_branch(stage.kind) || does(stage, Work::norm_of_heads) ||
         (ends_attention(stage.kind) && does(stage, Work::scores));
}

}  // namespace trireme::model
