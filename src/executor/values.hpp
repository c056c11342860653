// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <utility>

#include "trireme/kernels/experts.hpp"
#include "trireme/model/stage_tensors.hpp"
#include "trireme/schedule/phase.hpp"

namespace trireme::executor {

/// The tensors between the ops of one microbatch, by name and phase: values of forward, their gradients, values that a
/// recompute computes again, and those that are gathered or normed again for a backward. Two microbatches share none.
class Values {
 public:
  /// The tensors of one phase.
  class OfPhase {
   public:
    [[nodiscard]] at::Tensor& operator[](model::TensorId id) const { return tensors_[static_cast<std::size_t>(id)]; }
    /// Returns a tensor and leaves its place empty.
    [[nodiscard]] at::Tensor take(model::TensorId id) const { return std::exchange((*this)[id], at::Tensor()); }

   private:
    friend Values;
    using Tensors = std::array<at::Tensor, model::tensor_ids>;
    explicit OfPhase(Tensors& tensors) : tensors_(tensors) {}
    Tensors& tensors_;
  };

  [[nodiscard]] OfPhase in(schedule::Phase phase) { return OfPhase(tensors_[static_cast<std::size_t>(phase)]); }
  [[nodiscard]] OfPhase forward() { return in(schedule::Phase::forward); }
  [[nodiscard]] OfPhase gradients() { return in(schedule::Phase::backward); }
  /// Places of the rows between a router and the end of its layer.
  [[nodiscard]] kernels::ExpertRows& rows() { return rows_; }

 private:
  std::array<OfPhase::Tensors, static_cast<std::size_t>(schedule::Phase::recompute) + 1> tensors_;
  kernels::ExpertRows rows_;
};

}  // namespace trireme::executor
