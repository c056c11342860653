// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <set>
#include <span>
#include <string>

#include "trireme/base/units.hpp"
#include "trireme/comm/collectives.hpp"
#include "trireme/comm/transport.hpp"
#include "trireme/device/memory.hpp"

namespace trireme::mpi {
class Communicator;
}  // namespace trireme::mpi

/// Transports of tensors on a GPU.
namespace trireme::comm {

/// Pieces that keep a link busy at a small cost in memory.
inline constexpr Bytes staged_staging{16 << 20};

/// Moves the tensors of `device` in pieces through page-locked host memory, and there over `host`: for clusters without
/// NCCL, and for ranks that share one GPU. Bitwise equal to `host`. Calls return when they are complete.
[[nodiscard]] std::unique_ptr<Transport> staged_transport(std::unique_ptr<Transport> host, c10::Device device,
                                                          Bytes staging_bytes = staged_staging);

/// A group of one rank on `device`: copies.
[[nodiscard]] std::unique_ptr<Transport> lone_transport(c10::Device device);

/// Ranks for one root of an NCCL communicator's start-up: they talk to it one after the other, so that thousands at a
/// single one would take tens of seconds.
inline constexpr int ranks_per_root = 128;

/// Settings of new NCCL communicators.
struct NcclSettings {
  int max_ctas = 0;               ///< thread blocks of a collective at most (ncclConfig_t::maxCTAs); 0: NCCL decides
  int per_root = ranks_per_root;  ///< ranks of one root at start-up
  bool windows = false;           ///< registers the buffers of parameter blocks as windows
  bool copy_engines = false;      ///< gathers of windows by copy engines (NCCL_CTA_POLICY_ZERO, NCCL 2.28)
  bool bf16_wire = false;         ///< sums have bf16 on the wire: with windows their buffers are registered at start
  /// Equal on ranks of one NVLink domain. Groups that span several register no windows.
  std::string nvlink_domain{};
  mpi::FlightRecorder* recorder = nullptr;  ///< records the start; null: not recorded
};

/// Memory for windows on `device`, [elements], zeroed, from ncclMemAlloc, whose pages are 2 MiB; charged to `category`
/// until the last tensor that shares it is gone. Throws EnvironmentError if there is none, where NCCL has no windows
/// (before 2.27), and in a build without NCCL.
[[nodiscard]] at::Tensor window_memory(device::Category category, std::int64_t elements, DType type,
                                       c10::Device device);

/// NCCL on `device`: a new communicator over the ranks of `communicator`. With `first`, an idle NCCL transport of the
/// same ranks, it is split from that one (ncclCommSplit), which avoids the start-up; otherwise ids are broadcast
/// over MPI, one per `settings.per_root` ranks. Collective over `communicator`, one rank per GPU. Calls launch
/// and return; a watchdog thread ends the job when an operation exceeds the deadline or
/// NCCL reports an error. fp32 sums are computed by NCCL; bf16 terms are exchanged and summed here in fp32,
/// in rank order. An fp32 sum accumulated into a shard also overwrites this rank's part of `whole`. Values in
/// host memory are staged through the GPU. Throws EnvironmentError in a build without NCCL.
[[nodiscard]] std::unique_ptr<Transport> nccl_transport(const mpi::Communicator& communicator, c10::Device device,
                                                        const mpi::Deadline& deadline, const Transport* first = nullptr,
                                                        const NcclSettings& settings = {});

/// The version of the NCCL library that is loaded, as NCCL_VERSION_CODE (23003: 2.30.3); 0 in a build without NCCL.
[[nodiscard]] int nccl_version();

/// The properties by which NCCL distinguishes the ranks that share a GPU.
struct GpuUser {
  std::string bus;          ///< PCI address of its GPU
  std::string host_id{};    ///< NCCL_HOSTID; "": unset
  bool multi_rank = false;  ///< NCCL_MULTI_RANK_GPU_ENABLE=1
};
/// Whether several ranks use one GPU, and whether NCCL accepts all of them.
struct GpuSharing {
  bool shared = false;
  bool accepted = true;
};
/// Ranks of one GPU are accepted if each sets a distinct NCCL_HOSTID, so that NCCL
/// counts each as a separate node, or, from NCCL 2.30.3 on, if all set
/// NCCL_MULTI_RANK_GPU_ENABLE=1. users: the ranks of a node. nccl: `nccl_version`.
[[nodiscard]] GpuSharing gpu_sharing(std::span<const GpuUser> users, int nccl);
/// The same for all nodes of `world`; this rank uses the GPU at `bus`. Collective over it.
[[nodiscard]] GpuSharing gpu_sharing(const mpi::Communicator& world, const std::string& bus);

/// The pipeline ranks that one sends to and receives from, by their rank in the pipeline.
struct ChannelPeers {
  std::set<int> to, from;
};
/// One rank's ends of its channels.
struct Channels {
  std::unique_ptr<Transport> send, receive;
};

/// NCCL between neighbours of a pipeline on `device`: every channel, which leads from one rank to another, has a
/// communicator of two ranks. Collective over `communicator`, the pipeline's; a rank names those that name it. Both
/// carry messages only (`Transport::exchange`), launched and watched as `nccl_transport`.
[[nodiscard]] Channels nccl_channels(const mpi::Communicator& communicator, c10::Device device,
                                     const mpi::Deadline& deadline, const ChannelPeers& peers,
                                     const NcclSettings& settings = {});

/// Transport of GPU tensors between ranks.
enum class DeviceLink { staged, nccl };

/// Transport of tensors on `device` for `communicator`'s group. host: carries staged pieces. first: another one
/// of the same group, as in nccl_transport. Collective over it.
[[nodiscard]] std::unique_ptr<Transport> make_device_transport(const mpi::Communicator& communicator,
                                                               c10::Device device, DeviceLink link,
                                                               const Services& services,
                                                               TransportChoice host = TransportChoice::automatic,
                                                               const Transport* first = nullptr,
                                                               const NcclSettings& settings = {});

}  // namespace trireme::comm
