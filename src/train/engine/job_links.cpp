// SPDX-License-Identifier: Apache-2.0
#include "train/engine/job_links.hpp"

#include <fmt/format.h>

#include <utility>

#include "trireme/comm/transport.hpp"
#include "trireme/device/buffer.hpp"

namespace trireme::train {
namespace {

using Held = std::shared_ptr<std::atomic<std::int64_t>>;

/// Bytes that are counted as held for as long as `Memory` lives.
template <class Memory>
class Counted {
 public:
  Counted(const Held& held, std::int64_t bytes, Memory memory)
      : held_(held), bytes_(bytes), memory_(std::move(memory)) {
    *held_ += bytes_;
  }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() { *held_ -= bytes_; }

 private:
  Held held_;
  std::int64_t bytes_;
  Memory memory_;
};

comm::StagingSource charged_staging(const Held& held) {
  return {.allocate =
              [held](std::size_t bytes) {
                at::Tensor buffer = device::buffer(device::Category::communication,
                                                   static_cast<std::int64_t>((bytes + 3) / 4), DType::fp32);
                auto* const begin = static_cast<std::byte*>(buffer.mutable_data_ptr());
                const auto size = static_cast<std::int64_t>(buffer.nbytes());
                return std::shared_ptr<std::byte[]>(
                    std::make_shared<Counted<at::Tensor>>(held, size, std::move(buffer)), begin);
              },
          .charge = [held](std::size_t bytes) -> std::shared_ptr<void> {
            const auto size = static_cast<std::int64_t>(bytes);
            return std::make_shared<Counted<device::Charge>>(
                held, size, device::Charge({device::Category::communication}, Bytes{size}));
          }};
}

}  // namespace

JobLinks::JobLinks(const mpi::Communicator& world, const executor::LinkOptions& needed, const comm::ChannelPeers& peers,
                   const config::RunConfig& config, const JobOptions& options, StepTraffic& traffic)
    : groups_(world, needed.mesh) {
  for (const executor::Link& link : executor::links_of(needed)) {
    if (link.space == device::Space::device && link.lane == communicator_lane(link.lane))
      groups_.add(link.group, link.lane, needed.ranks(link.group));
    open(link, peers, config, options, traffic);
  }
}

std::unique_ptr<comm::Transport> JobLinks::transport_of(const executor::Link& link, const comm::ChannelPeers& peers,
                                                        const JobOptions& options, const comm::Services& services) {
  const bool values = link.lane == schedule::Lane::compute && !options.control_over_link;  // in the host's memory
  // Messages between two ranks: MPI's, which shared memory has not.
  const comm::TransportChoice choice =
      link.group == mesh::Group::pipeline ? comm::TransportChoice::mpi : options.transport;
  if (!options.device.is_cuda() || values || link.space == device::Space::host)
    return comm::make_transport(communicator(link), services.staging, choice);
  const bool receives = link.lane == schedule::Lane::receive;
  comm::NcclSettings nccl = options.nccl;
  nccl.bf16_wire = nccl.bf16_wire && link.lane == schedule::Lane::reduce;
  nccl.recorder = &recorder_;
  if (options.link == comm::DeviceLink::nccl && (link.lane == schedule::Lane::send || receives)) {
    if (!receives) channels_ = comm::nccl_channels(communicator(link), options.device, services.deadline, peers, nccl);
    return std::move(receives ? channels_.receive : channels_.send);
  }
  const auto first = first_.find(link.group);
  auto made = comm::make_device_transport(communicator(link), options.device, options.link, services, choice,
                                          first == first_.end() ? nullptr : first->second, nccl);
  if (first == first_.end() && options.link == comm::DeviceLink::nccl && made->size() > 1)
    first_.emplace(link.group, made.get());
  return made;
}

void JobLinks::open(const executor::Link& link, const comm::ChannelPeers& peers, const config::RunConfig& config,
                    const JobOptions& options, StepTraffic& traffic) {
  const bool control = link.lane == schedule::Lane::compute;
  const bool host = link.space == device::Space::host;
  const comm::Services services{.counters = &traffic.counters(link.lane),
                                .recorder = &recorder_,
                                .deadline = {.timeout_seconds = config.comm.timeout_seconds,
                                             .dump_path = options.hang_dump_path,
                                             .silent_ranks = options.silent_ranks,
                                             .last_progress = options.last_progress},
                                .staging = charged_staging(staging_)};
  auto transport = transport_of(link, peers, options, services);
  if (options.wrap_transport && !control) transport = options.wrap_transport(std::move(transport));
  auto& opened = collectives_[link] = std::make_unique<comm::Collectives>(
      std::move(transport), std::string(comm::traffic_name(link.group, link.lane)),
      fmt::format("{}/{}{}", mesh::to_text(link.group), to_text(link.lane), host ? " on the host" : ""), services);
  links_.add(link, *opened);
}

}  // namespace trireme::train
