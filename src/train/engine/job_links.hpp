// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>

#include "trireme/comm/groups.hpp"
#include "trireme/executor/links.hpp"
#include "trireme/mpi/flight.hpp"
#include "trireme/train/engine/job.hpp"

namespace trireme::train {

/// A job's communicators and collectives, one for every link that its schedule uses.
class JobLinks {
 public:
  /// Collective over `world`, which the links use until they end; so are options and traffic. Throws ConfigError when
  /// the mesh does not have as many ranks as `world`.
  /// peers: of the pipeline's channels, by this rank's lists.
  JobLinks(const mpi::Communicator& world, const executor::LinkOptions& needed, const comm::ChannelPeers& peers,
           const config::RunConfig& config, const JobOptions& options, StepTraffic& traffic);

  [[nodiscard]] const executor::Links& table() const { return links_; }
  [[nodiscard]] const mpi::Communicator& communicator(const executor::Link& link) const {
    return groups_.at(link.group, communicator_lane(link.lane));
  }
  /// Staging memory of transports; charged to `communication`, as are pipeline slots.
  [[nodiscard]] Bytes staging() const { return {staging_->load()}; }

 private:
  /// The two ends of a message use one communicator, although a rank sends and receives on two lanes.
  [[nodiscard]] static schedule::Lane communicator_lane(schedule::Lane lane) {
    return lane == schedule::Lane::receive ? schedule::Lane::send : lane;
  }
  /// Makes the collectives of a link. Collective over its group.
  void open(const executor::Link& link, const comm::ChannelPeers& peers, const config::RunConfig& config,
            const JobOptions& options, StepTraffic& traffic);
  [[nodiscard]] std::unique_ptr<comm::Transport> transport_of(const executor::Link& link,
                                                              const comm::ChannelPeers& peers,
                                                              const JobOptions& options,
                                                              const comm::Services& services);

  std::shared_ptr<std::atomic<std::int64_t>> staging_ = std::make_shared<std::atomic<std::int64_t>>(0);
  comm::Groups groups_;
  mpi::FlightRecorder recorder_;
  std::map<mesh::Group, const comm::Transport*> first_;  ///< of each group over NCCL: its other lanes split it
  comm::Channels channels_;                              ///< opened for two lanes at once: each end is taken by its own
  std::map<executor::Link, std::unique_ptr<comm::Collectives>> collectives_;
  executor::Links links_;
};

}  // namespace trireme::train
