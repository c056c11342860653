// SPDX-License-Identifier: Apache-2.0
#include "comm/device_memory.hpp"

#include <ATen/ops/from_blob.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/device_transports.hpp"
#include "trireme/mpi/communicator.hpp"

namespace trireme::comm {
namespace {

class LoneTransport final : public DeviceTransport {
 public:
  using DeviceTransport::DeviceTransport;
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  [[nodiscard]] std::string name() const override { return "copies"; }
  void all_gather(const std::byte*, std::byte*, Parts, mpi::Wait&) override { never(); }
  void reduce_scatter(const float*, float*, Parts, DType, bool, mpi::Wait&) override { never(); }
  void broadcast(std::span<std::byte>, int, mpi::Wait&) override { never(); }
  void barrier(mpi::Wait&) override { never(); }

 private:
  static void never() { throw BugError("a group of one rank has no collectives"); }
};

}  // namespace

at::Tensor tensor_at(const void* data, at::IntArrayRef shape, at::ScalarType type, c10::Device device) {
  return at::from_blob(const_cast<void*>(data), shape, at::TensorOptions(type).device(device));
}

void DeviceTransport::copy_alone(const std::byte* from, std::byte* to, std::int64_t count) {
  bytes(to, {count}).copy_(bytes(from, {count}), /*non_blocking=*/true);
}

void DeviceTransport::sum_alone(const float* from, float* to, std::int64_t elements, bool accumulate) {
  at::Tensor sum = floats(to, {elements});
  if (accumulate)
    sum.add_(floats(from, {elements}));
  else
    sum.copy_(floats(from, {elements}), /*non_blocking=*/true);
}

std::unique_ptr<Transport> lone_transport(c10::Device device) { return std::make_unique<LoneTransport>(device); }

std::unique_ptr<Transport> make_device_transport(const mpi::Communicator& communicator, c10::Device device,
                                                 DeviceLink link, const Services& services, TransportChoice host,
                                                 const Transport* first, const NcclSettings& settings) {
  if (communicator.size() == 1) return lone_transport(device);
  if (link == DeviceLink::nccl) {
    NcclSettings recorded = settings;
    recorded.recorder = services.recorder;
    return nccl_transport(communicator, device, services.deadline, first, recorded);
  }
  return staged_transport(make_transport(communicator, services.staging, host), device);
}

}  // namespace trireme::comm
