// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <functional>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/kernels/experts.hpp"
#include "trireme/schedule/stage_access.hpp"

namespace trireme::executor {

/// The tensors between the ops of one microbatch, by name and phase. Two microbatches share none.
class Values {
 public:
  [[nodiscard]] at::Tensor& operator[](schedule::TensorRef tensor) {
    return tensors_.at(static_cast<std::size_t>(tensor.phase)).at(static_cast<std::size_t>(tensor.id));
  }
  /// The residual stream of a phase.
  [[nodiscard]] at::Tensor& residual(schedule::Phase phase) { return (*this)[{model::TensorId::residual, phase}]; }
  /// Places of the rows between a router and the end of its layer.
  [[nodiscard]] kernels::ExpertRows& rows() { return rows_; }

 private:
  using Tensors = std::array<at::Tensor, model::tensor_ids>;
  std::array<Tensors, static_cast<std::size_t>(schedule::Phase::recompute) + 1> tensors_;
  kernels::ExpertRows rows_;
};

/// The tensors of one op, by name: those that the schedule lists for it. Any other is a BugError: lanes would not wait
/// for it.
class Frame {
 public:
  /// phase: of tensors that are named without one. on_end: receives the tensors that the op has used.
  Frame(Values& values, const schedule::TensorAccess& listed, schedule::Phase phase,
        std::function<void(schedule::TensorSet used)> on_end)
      : values_(values), listed_(listed.reads | listed.writes), phase_(phase), on_end_(std::move(on_end)) {}
  ~Frame() {
    if (on_end_) on_end_(used_);
  }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  [[nodiscard]] at::Tensor& operator[](schedule::TensorRef tensor) const {
    invariant(listed_.has(tensor), "an op uses a tensor that the schedule does not list for it");
    used_.add(tensor);
    return values_[tensor];
  }
  [[nodiscard]] at::Tensor& operator[](model::TensorId id) const { return (*this)[{id, phase_}]; }
  /// Returns a tensor and leaves its place empty.
  [[nodiscard]] at::Tensor take(schedule::TensorRef tensor) const {
    return std::exchange((*this)[tensor], at::Tensor());
  }
  [[nodiscard]] at::Tensor take(model::TensorId id) const { return take({id, phase_}); }
  /// Whether the op may use a tensor.
  [[nodiscard]] bool has(schedule::TensorRef tensor) const { return listed_.has(tensor); }
  [[nodiscard]] bool has(model::TensorId id) const { return has({id, phase_}); }

 private:
  Values& values_;
  schedule::TensorSet listed_;
  schedule::Phase phase_;
  std::function<void(schedule::TensorSet used)> on_end_;
  mutable schedule::TensorSet used_;
};

}  // namespace trireme::executor
