// SPDX-License-Identifier: Apache-2.0
//
// In place of src/device/cuda where Trireme is built for CPUs only, and in the program that a build for GPUs starts
// if there is no driver (TRIREME_NO_DRIVER).
#include "device/gpu_memory.hpp"
#include "trireme/base/error.hpp"
#include "trireme/device/gpus.hpp"
#include "trireme/device/graphs.hpp"

namespace trireme::device {
namespace {

#ifdef TRIREME_NO_DRIVER
constexpr bool for_gpus = true;
constexpr const char* reason =
    "CUDA finds no GPU that this process may use (no NVIDIA driver here: libcuda.so.1 cannot be loaded)";
#else
constexpr bool for_gpus = false;
constexpr const char* reason = "this trireme was built without CUDA (TRIREME_CUDA=OFF)";
#endif

}  // namespace

bool built_for_gpus() { return for_gpus; }

GpuProbe probe_gpus() { return {.gpus = {}, .reason = reason}; }

c10::Device use_gpu(int) { throw BugError(reason); }

void cap_gpu_memory(c10::Device, Bytes, Bytes) { throw BugError(reason); }

c10::DataPtr page_locked(c10::DataPtr, std::size_t) { throw BugError(reason); }

std::unique_ptr<Graphs> make_graphs(c10::Device) { throw BugError(reason); }

void recharge_on_gpu(const void*, Category) noexcept {}

}  // namespace trireme::device
