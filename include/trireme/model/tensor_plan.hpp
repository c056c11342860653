// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "trireme/model/model.hpp"

/// Tensor parallelism as data: a table by role and kind of how parameters and stages are divided, for any architecture
/// (Shoeybi et al. 2019; sequence parallelism: Korthikanti et al. 2022).
namespace trireme::model {

/// Units divided among the ranks of the tensor axis.
enum class Unit { none, heads, kv_heads, intermediate, vocabulary };

/// Partition of a parameter.
struct ParameterRule {
  Split split = Split::replicated;
  Unit unit = Unit::none;
  int sections = 1;  ///< each partitioned separately
  /// For a replicated parameter: it is applied to the residual stream, and with sequence parallelism each rank has a
  /// part of that. Else every rank computes its whole gradient.
  bool on_residual_stream = false;
  bool sum_of_heads = false;  ///< of a replicated parameter: every rank applies it to its own heads
};

/// Parameters of a whole stage: of the norm of its input, of the branch, of the norm of its output.
enum class Has { pre, branch, post };

/// One of the stages of a partitioned stage. Those with `post` exist only in decoders that have that norm; before a
/// branch without a norm of its input StageKind::input replaces the norm.
struct Piece {
  std::string_view name;
  StageKind kind;
  Has has;                        ///< which parameters of the whole stage
  std::optional<Exchange> enter;  ///< where sequence parallelism is left
  std::optional<Exchange> leave;  ///< where it is entered again
};
struct StageRule {
  StageKind whole;
  std::vector<Piece> pieces;  ///< empty: the stage is not partitioned and stays on the residual stream
};

/// Partition of parameters of a role.
[[nodiscard]] ParameterRule rule_of(Role role, const Decoder& decoder);
/// Partition of a decoder's stages: every kind of a whole stage has a rule.
[[nodiscard]] const std::vector<StageRule>& stage_rules();

/// The stages that a whole stage is cut into, joined as with sequence parallelism; itself where it stays whole.
[[nodiscard]] std::vector<Stage> pieces_of(const Stage& whole, const Decoder& decoder);
/// The stages of an attention_branch between which ranks can exchange something: projection, the norm of queries and
/// keys over all heads where the decoder has one, attend. Joined to others as the branch is, among each other not.
[[nodiscard]] std::vector<Stage> pieces_of_attention(const Stage& branch, const Decoder& decoder);
/// Values of a token that attention over gathered keys reads, the last columns of a projection's output: keys and
/// values of this rank's heads, or the latent from which they are expanded and the key that heads share. held: one
/// tensor rank's.
[[nodiscard]] std::int64_t gathered_width(const Sizes& held);
/// Ranks that hold the same key and value head: 1 unless there are more ranks than heads.
[[nodiscard]] std::int64_t kv_copies(const Sizes& sizes, std::int64_t ranks);

/// The part of a whole model on one tensor rank. Throws ConfigError naming every size that does not divide and
/// the nearest numbers of ranks with which all do.
[[nodiscard]] Model partition(Model model, const TensorPart& part);

/// Consecutive elements that a held parameter and the whole one have in common.
struct Extent {
  std::int64_t held = 0;   ///< the first one, row-major in `shape`
  std::int64_t whole = 0;  ///< the first one, row-major in `full_shape()`
  std::int64_t count = 0;
};
/// The ranges of the held elements [begin, end) in the whole parameter, in order, without padding.
[[nodiscard]] std::vector<Extent> extents(const Parameter& parameter, std::int64_t begin, std::int64_t end);

/// The same parameter as tensor rank `rank` holds it.
[[nodiscard]] Parameter as_held_by(Parameter parameter, int rank);

/// The tokens of the vocabulary that a tensor rank holds: [first, first + count). Rows beyond are padding.
struct VocabularyPart {
  std::int64_t first = 0;
  std::int64_t count = 0;
};
[[nodiscard]] VocabularyPart vocabulary_part(std::int64_t vocab, const TensorPart& part);

}  // namespace trireme::model
