// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "nccl.h"

/// The part of c10's CUDA streams that src/comm/cuda uses, on the simulated GPU.
namespace c10::cuda {

class CUDAStream {
 public:
  explicit CUDAStream(Stream stream) : stream_(stream) {}
  [[nodiscard]] Stream unwrap() const { return stream_; }
  [[nodiscard]] cudaStream_t stream() const { return nullptr; }

 private:
  Stream stream_;
};

inline CUDAStream getCurrentCUDAStream(DeviceIndex gpu = 0) {
  const Device device(DeviceType::CUDA, gpu < 0 ? DeviceIndex{0} : gpu);
  return CUDAStream(impl::VirtualGuardImpl(DeviceType::CUDA).getStream(device));
}

}  // namespace c10::cuda
