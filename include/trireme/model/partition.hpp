// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/model/context.hpp"
#include "trireme/model/experts.hpp"
#include "trireme/model/fp8.hpp"

/// Partition of a parameter under tensor parallelism.
namespace trireme::model {

/// A tensor rank's part of a model, its tokens, and the precision of its products.
struct TensorPart {
  int rank = 0;
  int ranks = 1;
  bool sequence_parallel = false;  ///< norms and residuals see 1/ranks of the tokens
  ContextPart context{};
  ExpertPart experts{};
  Fp8Choice fp8{};  ///< of its products
  friend bool operator==(const TensorPart&, const TensorPart&) = default;
};

/// column: the outputs of a linear layer (rows of its weight, elements of its bias). row: its inputs (columns).
/// vocabulary: rows of an embedding or of the head. replicated: nothing.
enum class Split { replicated, column, row, vocabulary };

/// Part of a parameter on one tensor rank.
struct Partition {
  Split split = Split::replicated;
  int sections = 1;           ///< each partitioned separately: q, k and v of a joint projection
  std::int64_t full = 0;      ///< size of the cut dimension of the whole parameter
  int parts = 1;              ///< that there are
  int part = 0;               ///< that is held
  int copies = 1;             ///< neighbours that hold the same part
  int copy = 0;               ///< index of this one among them
  bool sum_gradient = false;  ///< copies see different tokens or heads: the gradient is the sum of theirs
  friend bool operator==(const Partition&, const Partition&) = default;
};

}  // namespace trireme::model
