// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/nn/frame.hpp"

namespace trireme::nn {

/// One stage, as code on a frame: reads and writes tensors by name, keeps those of its table. Const and without state:
/// one object serves every microbatch.
class StageCode {
 protected:
  using enum model::TensorId;

 public:
  virtual ~StageCode() = default;

  /// Also runs in recomputes.
  virtual void forward(StageFrame& f) const = 0;
  /// Recomputes its output from kept tensors.
  virtual void rebuild(StageFrame& f) const;
  /// Computes the gradients of forward's inputs; leaves the inputs of backward_weight in `kept`.
  virtual void backward_input(StageFrame& f) const;
  /// Writes the gradients of the parameters, without reading values of parameters.
  virtual void backward_weight(StageFrame& f) const;
  /// Both in one op.
  virtual void backward(StageFrame& f) const;
  /// Completes a gradient with sums over the ranks of the tensor axis.
  virtual void finish_backward(StageFrame& f) const;
};

}  // namespace trireme::nn
