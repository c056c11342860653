// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "trireme/optim/muon.hpp"
#include "trireme/optimizer/plan.hpp"
#include "trireme/schedule/op.hpp"
#include "trireme/store/parameter_store.hpp"

namespace trireme::executor {

/// The matrices that Muon updates, as one rank exchanges them with their owners.
class MatrixExchange {
 public:
  /// Throws BugError unless the schedule has the ops of all matrices of the model. plan: with matrices().
  MatrixExchange(const optimizer::OptimizerPlan& plan, const model::Model& model, const store::ParameterStore& store,
                 const schedule::Schedule& schedule);

  /// This rank's pieces of a block's matrices.
  [[nodiscard]] std::span<const optim::MatrixRange> ranges(ParamBlock block) const;
  /// By rank, elements that it receives of this rank's pieces, and elements that this rank owns of its pieces.
  struct Counts {
    std::vector<std::int64_t> pieces, owned;
  };
  [[nodiscard]] const Counts& counts(const schedule::Matrices& of) const { return window(of).counts; }
  [[nodiscard]] DType type() const { return type_; }
  /// Orthogonalizes this rank's matrices in their messages, [elements] in type().
  void orthogonalize(const schedule::Matrices& of, const at::Tensor& messages, const optim::Team& team) const;

 private:
  struct Piece {
    shard::Hyperslab hyperslab;
    std::int64_t place;
  };
  struct Owned {
    std::int64_t rows = 0, columns = 0;
    std::vector<Piece> pieces;
  };
  struct Window {
    Counts counts;
    std::vector<Owned> matrices;
  };
  void add_ranges(const optimizer::OptimizerPlan& plan, const model::Model& model, const optimizer::OwnerPlan& owners,
                  int window, int rank);
  [[nodiscard]] const Window& window(const schedule::Matrices& of) const;

  DType type_;
  std::vector<optimizer::NewtonSchulzStep> steps_;
  std::map<ParamBlock, Window> windows_;  ///< by first block
  std::map<ParamBlock, std::vector<optim::MatrixRange>> ranges_;
};

}  // namespace trireme::executor
