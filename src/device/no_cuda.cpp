// SPDX-License-Identifier: Apache-2.0
//
// In place of src/device/cuda where Trireme is built for CPUs only.
#include "trireme/device/gpus.hpp"

namespace trireme::device {

bool built_for_gpus() { return false; }

GpuProbe probe_gpus() { return {.gpus = {}, .reason = "this trireme was built without CUDA (TRIREME_CUDA=OFF)"}; }

}  // namespace trireme::device
