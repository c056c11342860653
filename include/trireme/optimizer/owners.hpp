// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/units.hpp"
#include "trireme/model/model.hpp"
#include "trireme/optimizer/muon.hpp"
#include "trireme/shard/hyperslab.hpp"
#include "trireme/shard/layout.hpp"

/// The owners of matrices: Muon orthogonalizes a whole matrix on one rank, whatever the mesh.
namespace trireme::optimizer {

/// A matrix that Muon orthogonalizes: a parameter, or a third of one with queries, keys and values (GPT-2).
struct Matrix {
  ParamBlock block;
  int parameter = 0;       ///< index in the block
  std::int64_t first = 0;  ///< of its elements in the whole parameter
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  int owner = 0;  ///< rank of the fold
  [[nodiscard]] std::int64_t elements() const { return rows * columns; }
  friend bool operator==(const Matrix&, const Matrix&) = default;
};

/// FLOPs of the five Newton-Schulz iterations.
[[nodiscard]] double newton_schulz_flops(const Matrix& matrix);

/// Consecutive parameter blocks whose matrices are exchanged at once.
struct MatrixWindow {
  ParamBlock first, last;
  std::vector<Matrix> matrices;  ///< by block, then parameter
};

/// Elements of a matrix that are contiguous in a rank's shard, and in a message to or from its owner.
struct MatrixPiece {
  int matrix = 0;              ///< index in the window
  std::int64_t offset = 0;     ///< in the shard of the matrix's block
  std::int64_t place = 0;      ///< in the messages of the rank, by owner
  shard::Hyperslab hyperslab;  ///< of the matrix, row-major
  friend bool operator==(const MatrixPiece&, const MatrixPiece&) = default;
};

/// Settings of an OwnerPlan.
struct OwnerOptions {
  std::vector<std::string> adamw{};     ///< globs: matrices that AdamW updates
  DType type = DType::fp32;             ///< of matrices in messages
  Bytes window{std::int64_t{1} << 30};  ///< of matrices for each rank that are exchanged at once
  friend bool operator==(const OwnerOptions&, const OwnerOptions&) = default;
};

/// Owners and messages of the ranks with the same blocks and another part of each: shard x context x tensor, the fold.
/// Rank f of it has shard f / tensor and tensor rank f % tensor. A pure function of its arguments, equal on every rank.
class OwnerPlan {
 public:
  /// model: of any tensor rank. The block order of windows is the model's; within a block, matrices of most FLOPs come
  /// first, each to the rank with the fewest FLOPs so far. A window has blocks of `options.window` bytes for each rank,
  /// at least one. model and layout outlive it.
  OwnerPlan(const model::Model& model, const shard::Layout& layout, const OwnerOptions& options);

  [[nodiscard]] int ranks() const { return layout_.shards() * model_.part.ranks; }
  /// A rank's index in the fold.
  [[nodiscard]] int rank_of(int shard_rank) const { return shard_rank * model_.part.ranks + model_.part.rank; }
  [[nodiscard]] std::span<const MatrixWindow> windows() const { return windows_; }
  /// Index of the window of a block with matrices.
  [[nodiscard]] int window_of(ParamBlock block) const;
  [[nodiscard]] DType type() const { return type_; }

  /// All pieces of a rank, by owner, then matrix: also those that other tensor ranks hold, too.
  [[nodiscard]] std::vector<MatrixPiece> pieces(int window, int rank) const;
  /// Pieces of the matrices that `owner` has, by rank: `place` is that in the owner's messages, by rank.
  [[nodiscard]] std::vector<std::vector<MatrixPiece>> owned(int window, int owner) const;

  /// Elements of a rank's messages in each of the slots that windows take in turn: sent to owners, and received as
  /// one; none of the latter with one rank.
  struct Buffers {
    std::int64_t pieces = 0, owned = 0;
  };
  [[nodiscard]] std::vector<Buffers> buffers(int rank) const;
  [[nodiscard]] Bytes buffer_bytes(int rank) const;
  /// Elements that a rank sends to other ranks in a window: to owners, and as one.
  [[nodiscard]] Buffers sent(int window, int rank) const;
  /// FLOPs of each rank in a step.
  [[nodiscard]] std::vector<double> flops() const;
  /// FLOPs of each rank in a window.
  [[nodiscard]] std::vector<double> flops(int window) const;

 private:
  /// Pieces of one matrix on a rank, without places.
  [[nodiscard]] std::vector<MatrixPiece> pieces_of(const MatrixWindow& window, int matrix, int rank) const;

  const model::Model& model_;
  const shard::Layout& layout_;
  DType type_;
  std::vector<MatrixWindow> windows_;
};

/// Slots of messages: one window is exchanged while another is orthogonalized.
inline constexpr int matrix_slots = 2;

}  // namespace trireme::optimizer
