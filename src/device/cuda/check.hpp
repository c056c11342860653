// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <driver_types.h>

#include <source_location>
#include <string_view>

namespace trireme::device::cuda {

/// Throws EnvironmentError unless a call into CUDA succeeded; `what` completes "could not ...".
void check(cudaError_t status, std::string_view what, std::source_location where = std::source_location::current());

}  // namespace trireme::device::cuda
