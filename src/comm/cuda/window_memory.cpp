// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>

#include <memory>

#include "comm/cuda/nccl.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/units.hpp"
#include "trireme/comm/device_transports.hpp"
#include "trireme/device/buffer.hpp"

namespace trireme::comm {

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
at::Tensor window_memory(device::Category category, std::int64_t elements, DType type, c10::Device device) {
  const c10::cuda::CUDAGuard guard(device);
  const Bytes bytes{elements * size_of(type)};
  void* memory = nullptr;
  nccl::check(ncclMemAlloc(&memory, static_cast<std::size_t>(bytes.value)),
              fmt::format("allocate {} for a window ({})", to_text(bytes), device::to_text(category)));
  auto charge = std::make_shared<device::Charge>(device::Charge::of_gpu(category, bytes));
  at::Tensor tensor = at::from_blob(
      memory, {elements},
      [charge, device](void* data) {
        // Its pages go back to the driver, not to a stream's cache: nothing may use them still.
        c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
        (void)ncclMemFree(data);
      },
      at::TensorOptions(device::to_torch(type)).device(device));
  tensor.zero_();
  return tensor;
}
#else
at::Tensor window_memory(device::Category, std::int64_t, DType, c10::Device) {
  throw EnvironmentError(fmt::format(
      "comm.nccl_windows = true requires NCCL 2.27, but this trireme was built with {}.{}.{}. Leave it out.",
      NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH));
}
#endif

}  // namespace trireme::comm
