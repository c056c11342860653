// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

#include "trireme/comm/transport.hpp"

namespace trireme::comm {

/// A tensor over borrowed memory.
[[nodiscard]] at::Tensor tensor_at(const void* data, at::IntArrayRef shape, at::ScalarType type, c10::Device device);

/// Base of transports of tensors on a device: a group of one copies on the calling thread's current stream.
class DeviceTransport : public Transport {
 public:
  explicit DeviceTransport(c10::Device device) : device_(device) {}
  void copy_alone(const std::byte* from, std::byte* to, std::int64_t bytes) override;
  void sum_alone(const float* from, float* to, std::int64_t elements, bool accumulate) override;

 protected:
  [[nodiscard]] c10::Device device() const { return device_; }
  [[nodiscard]] at::Tensor floats(const float* data, at::IntArrayRef shape) const {
    return tensor_at(data, shape, at::kFloat, device_);
  }
  [[nodiscard]] at::Tensor bytes(const std::byte* data, at::IntArrayRef shape) const {
    return tensor_at(data, shape, at::kByte, device_);
  }

 private:
  c10::Device device_;
};

}  // namespace trireme::comm
