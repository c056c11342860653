// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "trireme/base/units.hpp"

/// Copies between the memory where a step computes and the host's. On a CPU-only build both are host memory and the
/// bytes are moved all the same. The calling thread works alone and returns when it is done.
namespace trireme::device {

void copy(const void* from, void* to, Bytes bytes);

/// host += device, elementwise, through a buffer of the host that stays in cache. device, host: [elements].
void add_to_host(std::span<const float> device, std::span<float> host);

}  // namespace trireme::device
