// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "trireme/model/model.hpp"
#include "trireme/schedule/exchange.hpp"
#include "trireme/schedule/op.hpp"

/// The ops of one stage and microbatch, with the collectives before and after it.
namespace trireme::schedule {

void append_forward(std::vector<Op>& ops, const model::Model& model, Block block, Stage stage, Microbatch m);

/// The exchanges of a stage at one place.
void append_exchanges(std::vector<Op>& ops, const model::Model& model, Block block, Stage stage, Microbatch m,
                      Place place);

/// A branch's backward in two parts: its input's gradient is summed while its weights' are computed, and its input is
/// gathered again while its input's gradient is computed.
void append_backward(std::vector<Op>& ops, const model::Model& model, Block block, Stage stage, Microbatch m);

/// The gradient of the stage's input with its exchanges; and those of its weights, which can follow at any later time.
void append_backward_input(std::vector<Op>& ops, const model::Model& model, Block block, Stage stage, Microbatch m);
void append_backward_weight(std::vector<Op>& ops, const model::Model& model, Block block, Stage stage, Microbatch m);

}  // namespace trireme::schedule
