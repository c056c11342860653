// SPDX-License-Identifier: Apache-2.0
//
// In a build without CUDA: no tensor is on a device, so these are never called.
#include "trireme/base/error.hpp"
#include "trireme/optim/device.hpp"

namespace trireme::optim {

void adamw(const AdamWStep&, std::span<const UpdateRange>, const at::Tensor&, const DeviceState&, const at::Tensor&) {
  throw BugError("an update on a device in a build without CUDA");
}

void sum_of_squares(const at::Tensor&, const shard::Range&, const at::Tensor&) {
  throw BugError("a norm on a device in a build without CUDA");
}

}  // namespace trireme::optim
