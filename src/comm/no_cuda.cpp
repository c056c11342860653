// SPDX-License-Identifier: Apache-2.0
//
// In place of src/comm/cuda where Trireme is built for CPUs only.
#include "trireme/base/error.hpp"
#include "trireme/comm/device_transports.hpp"
#include "trireme/comm/transport.hpp"

namespace trireme::comm {
namespace {

constexpr const char* without = "NCCL was requested, but this trireme was built without CUDA (TRIREME_CUDA=OFF).";

}  // namespace

std::unique_ptr<Transport> nccl_transport(const mpi::Communicator&, c10::Device, const mpi::Deadline&, const Transport*,
                                          const NcclSettings&) {
  throw EnvironmentError(without);
}

Channels nccl_channels(const mpi::Communicator&, c10::Device, const mpi::Deadline&, const ChannelPeers&,
                       const NcclSettings&) {
  throw EnvironmentError(without);
}

int nccl_version() { return 0; }

at::Tensor window_memory(device::Category, std::int64_t, DType, c10::Device) { throw EnvironmentError(without); }

}  // namespace trireme::comm
