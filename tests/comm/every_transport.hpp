// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "trireme/comm/collectives.hpp"
#include "trireme/comm/device_transports.hpp"
#include "trireme/comm/groups.hpp"
#include "trireme/comm/transport.hpp"
#include "trireme/mpi/communicator.hpp"

namespace trireme::comm {

/// A transport and how much it stages at once.
struct Variant {
  TransportChoice choice;
  std::int64_t staging_bytes;
  bool staged = false;  ///< as tensors on a GPU travel without NCCL; here they lie in the host's memory
};

// Small staging makes many chunks out of few elements.
class EveryTransport : public testing::TestWithParam<Variant> {
 protected:
  std::unique_ptr<Collectives> open(const Services& services = {}) const {
    const auto& [choice, staging_bytes, staged] = GetParam();
    if (!staged)
      return make_collectives(world_, mesh::Group::shard, schedule::Lane::reduce, services, choice,
                              Bytes{staging_bytes});
    auto host = make_transport(world_, services.staging, choice);
    return std::make_unique<Collectives>(staged_transport(std::move(host), at::kCPU, Bytes{staging_bytes}), "shard",
                                         "shard/reduce", services);
  }

  [[nodiscard]] int rank() const { return world_.rank(); }
  [[nodiscard]] int size() const { return world_.size(); }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
};
inline const auto every_variant = testing::Values(
    Variant{TransportChoice::mpi, 8 << 20}, Variant{TransportChoice::mpi, 16 << 10},
    Variant{TransportChoice::shared_memory, 4 << 20}, Variant{TransportChoice::shared_memory, 16 << 10},
    Variant{TransportChoice::mpi, 16 << 10, true}, Variant{TransportChoice::shared_memory, 1 << 20, true});

inline std::string name_of(const testing::TestParamInfo<Variant>& info) {
  return std::string(info.param.choice == TransportChoice::mpi ? "Mpi" : "SharedMemory") +
         (info.param.staging_bytes > (1 << 20) ? "" : "ManyChunks") + (info.param.staged ? "Staged" : "");
}

}  // namespace trireme::comm
