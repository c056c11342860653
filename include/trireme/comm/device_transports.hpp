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

/// Moves the tensors of `device` in pieces through page-locked memory of the host, and there over `host`: for clusters
/// without NCCL, and for ranks that share one GPU. The same bits as `host` gives. Calls return when they are done.
[[nodiscard]] std::unique_ptr<Transport> staged_transport(std::unique_ptr<Transport> host, c10::Device device,
                                                          Bytes staging_bytes = staged_staging);

/// A group of one rank on `device`: copies.
[[nodiscard]] std::unique_ptr<Transport> lone_transport(c10::Device device);

/// Ranks for one root of an NCCL communicator's start-up: they talk to it one after the other, so that thousands at a
/// single one would take tens of seconds.
inline constexpr int ranks_per_root = 128;

/// How NCCL makes a communicator.
struct NcclSettings {
  int max_ctas = 0;               ///< thread blocks of a collective at most (ncclConfig_t::maxCTAs); 0: NCCL decides
  int per_root = ranks_per_root;  ///< ranks of one root at start-up
  bool windows = false;           ///< what collectives of parameter blocks read and write lies in windows
  bool copy_engines = false;      ///< gathers of windows by copy engines (NCCL_CTA_POLICY_ZERO, NCCL 2.28)
  bool bf16_wire = false;         ///< sums have bf16 on the wire: with windows their buffers are registered at start
  /// Equal on ranks that lie in one NVLink domain. Groups that span several register no windows.
  std::string nvlink_domain{};
  mpi::FlightRecorder* recorder = nullptr;  ///< records the start; null: not recorded
};

/// Memory for windows on `device`, [elements], zeroed, from ncclMemAlloc, whose pages are 2 MiB; charged to `category`
/// until the last tensor that shares it is gone. Throws EnvironmentError where there is none, where NCCL has no windows
/// (before 2.27), and in a build without NCCL.
[[nodiscard]] at::Tensor window_memory(device::Category category, std::int64_t elements, DType type,
                                       c10::Device device);

/// NCCL on `device`, a communicator of its own, made over `communicator`: by splitting that of `first`, another NCCL
/// transport of the same ranks over which nothing is under way, which saves the start-up, or from ids that go round
/// over MPI, one for `settings.per_root` ranks, where there is none. Collective over it, one rank a GPU. Calls launch
/// and return; a thread watches what is under way and ends the job where it takes longer than the deadline, or where
/// NCCL reports an error. fp32 sums are NCCL's own; bf16 on the wire is an exchange of terms, summed here in fp32 and
/// in rank order; an fp32 sum that is added to a shard is left in this rank's part of the whole, too. Values in the
/// host's memory go through the GPU. Throws EnvironmentError in a build without NCCL.
[[nodiscard]] std::unique_ptr<Transport> nccl_transport(const mpi::Communicator& communicator, c10::Device device,
                                                        const mpi::Deadline& deadline, const Transport* first = nullptr,
                                                        const NcclSettings& settings = {});

/// The version of the NCCL library that is loaded, as NCCL_VERSION_CODE (23003: 2.30.3); 0 in a build without NCCL.
[[nodiscard]] int nccl_version();

/// How a rank uses its GPU, as NCCL tells ranks apart.
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
/// Ranks of one GPU are accepted where each has set NCCL_HOSTID and no two ids are equal, so that each counts as a node
/// of its own, and from NCCL 2.30.3 on where all have set NCCL_MULTI_RANK_GPU_ENABLE=1. users: the ranks of a node.
/// nccl: `nccl_version`.
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

/// How tensors on a GPU travel between ranks.
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
