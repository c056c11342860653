// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/executor/links.hpp"
#include "trireme/model/model.hpp"
#include "trireme/store/parameter_store.hpp"

namespace trireme::train {

/// Registers what gathers and reductions of parameter blocks read and write with what carries them (comm.nccl_windows).
/// Collective over the groups of all blocks.
void add_windows(const model::Model& model, const store::ParameterStore& store, const executor::Links& links);

}  // namespace trireme::train
