// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/device/history.hpp"
#include "trireme/model/model.hpp"
#include "trireme/schedule/op.hpp"

namespace trireme::train {

/// The history as a pickle of the dictionary that PyTorch's memory_viz page and `torch.cuda._memory_viz` read (the form
/// of torch.cuda.memory._snapshot(), PyTorch 2.11): device 0 is where the step computes, device 1 the host's memory.
/// Each block is a separate segment; its frame names the category, the op and the step.
[[nodiscard]] std::string memory_snapshot(const device::MemoryHistory& history, const schedule::Schedule& schedule,
                                          const model::Model& model);

}  // namespace trireme::train
