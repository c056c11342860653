// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "trireme/kernels/attention.hpp"
#include "trireme/kernels/rms_norm.hpp"
#include "trireme/model/context.hpp"
#include "trireme/nn/stage.hpp"

namespace trireme::nn {

class Slots;

/// Columns of q|k that are normed together: a head, or all of q or of k.
struct NormedPiece {
  std::int64_t begin = 0, end = 0;
  std::size_t weight = 0;  ///< its place among the parameters
  bool first = true;       ///< of those that share the weight
};

/// The columns of q, k and v in q|k|v [N, (heads + 2 kv_heads) * head_dim].
struct ProjectedParts {
  at::Tensor q, k, v;
  at::Tensor qk,
      kv;  ///< both: local heads for norms and RoPE; `kv` for attention over gathered keys
  ProjectedParts(const at::Tensor& qkv, const model::Sizes& sizes);
};

/// Rotation of queries and keys in a stage, and its tokens.
struct RopeOfStage {
  std::int64_t width = 0, head_dim = 0, begin = 0;  ///< begin: of the rotated elements of a head
  bool adjacent_pairs = false;
  double theta = 0;
  std::optional<config::RopeScaling> scaling;
  model::ContextPart part;
  at::Device device;
  friend bool operator==(const RopeOfStage&, const RopeOfStage&) = default;
};

/// Tables for queries differ from those for keys if queries are scaled by their position.
using RotaryTables = kernels::Rotated;

/// Computation between the projection q|k|v and attention: a norm of queries and keys where the decoder has one, and
/// RoPE where the stage rotates.
class QueriesAndKeys {
 public:
  /// max_seq_len: of whole sequences; if `part` divides
  /// them, all have this length. device: of the tensors.
  QueriesAndKeys(const model::Sizes& sizes, const model::Stage& stage, const Slots& slots, std::int64_t max_seq_len,
                 const model::ContextPart& part, at::Device device);

  [[nodiscard]] bool norms() const { return !pieces_.empty(); }
  /// rstd, fp32, that `prepare` writes for `tokens` tokens: [pieces, N]. Undefined without a norm.
  [[nodiscard]] at::Tensor new_rstd(const at::Tensor& like, std::int64_t tokens) const;
  /// Queries and keys as attention reads them, [N, (heads + kv_heads) * head_dim]: those of `qk` turned in place, or
  /// normed and turned in a new tensor. rstd: written unless `again`. Without a norm it is turned once only.
  [[nodiscard]] at::Tensor prepare(const at::Tensor& qk, std::span<const at::Tensor> parameters,
                                   const Microbatch& microbatch, const at::Tensor& rstd, bool again) const;
  /// The rotation by `prepare`, for attention's backward.
  [[nodiscard]] kernels::Rotated rotated(const Microbatch& microbatch) const;
  /// Replaces the gradient of prepare's result by that of the projection's output, rotated back by `rotated`. qk: its
  /// input. Returns the gradients of the norms' weights.
  [[nodiscard]] std::vector<at::Tensor> norms_backward(const at::Tensor& d_qk, const at::Tensor& qk,
                                                       std::span<const at::Tensor> parameters,
                                                       const at::Tensor& rstd) const;
  /// The same of a gradient that is not turned back.
  [[nodiscard]] std::vector<at::Tensor> backward(const at::Tensor& d_qk, const at::Tensor& qk,
                                                 std::span<const at::Tensor> parameters, const Microbatch& microbatch,
                                                 const at::Tensor& rstd) const;
  /// Stores the gradients that `backward` returned.
  void put_weights(std::span<const at::Tensor> d_weights, std::span<const Grad> grads) const;

 private:
  /// Norms of each head separately.
  [[nodiscard]] kernels::HeadNorms head_norms(std::span<const at::Tensor> parameters) const;
  /// The angles from the microbatch's first position on.
  [[nodiscard]] RotaryTables tables_of(const Microbatch& microbatch) const;
  /// RoPE of q|k in place, where the stage rotates.
  void rotate(const at::Tensor& qk, const Microbatch& microbatch, kernels::Rotation direction) const;
  /// Added to the weights of the norms of queries and keys.
  [[nodiscard]] float norm_offset() const { return offset_; }

  double eps_;
  float offset_;
  std::vector<NormedPiece> pieces_;
  bool by_head_;          ///< norms of each head
  std::int64_t queries_;  ///< columns of q in q|k
  std::int64_t max_seq_len_;
  RopeOfStage rope_;
  std::shared_ptr<const RotaryTables> tables_;  ///< null: the stage does not rotate
  std::shared_ptr<const RotaryTables>
      long_tables_;  ///< of sequences longer than short_length_, where these turn otherwise
  std::int64_t short_length_ = 0;
};

}  // namespace trireme::nn
