// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace trireme::device::cuda {

/// The NVLink domain of the GPU at a PCI address, by NVML: equal for GPUs of a node (or of nodes, where the text begins
/// with "fabric") that reach each other over NVLink; empty without NVLink or NVML.
[[nodiscard]] std::string nvlink_domain(const std::string& bus);

}  // namespace trireme::device::cuda
