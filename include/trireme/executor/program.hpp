// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "trireme/model/model.hpp"
#include "trireme/nn/stage.hpp"
#include "trireme/schedule/op.hpp"
#include "trireme/store/parameter_store.hpp"

namespace trireme::executor {

/// Operands of one stage of a compute op: views into ring buffers, resolved once.
struct StageOperands {
  Stage stage;
  const model::Stage* spec;
  std::vector<at::Tensor> parameters;  ///< in the stage's order, in the compute dtype
  std::vector<nn::Grad> gradients;     ///< the same, backward only
};

/// Operands of one op of a schedule, with its slots resolved to memory.
struct Operands {
  std::vector<StageOperands> stages{};    ///< of an op that computes, in the order they run
  std::optional<schedule::Slot> freed{};  ///< by a Reshard, if its block was in a slot
  bool weights_wait = false;              ///< of a Backward's input: other backwards run before that of its weights
};
using Program = std::vector<Operands>;  ///< by op

[[nodiscard]] Program resolve(const schedule::Schedule& schedule, const model::Model& model,
                              store::ParameterStore& store);

}  // namespace trireme::executor
