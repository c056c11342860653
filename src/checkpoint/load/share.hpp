// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "checkpoint/part.hpp"
#include "trireme/checkpoint/load/places.hpp"
#include "trireme/checkpoint/manifest.hpp"
#include "trireme/checkpoint/save/save.hpp"
#include "trireme/mpi/communicator.hpp"

/// Distributes a manifest that one rank has read to the ranks of a job. The manifest of a checkpoint of thousands of
/// ranks is large: only the first rank holds all of it, the others receive the part that they need.
namespace trireme::checkpoint {

/// The first rank's manifest without its files and digests, on every rank. Collective.
[[nodiscard]] Manifest share_head(const mpi::Communicator& world, const Manifest& whole);

/// Parts of the checkpoint of `head` that a rank with `shards` reads. Parameters that are not there are
/// left out.
[[nodiscard]] Request request_for(const Manifest& head, const Shards& shards, Reads reads);

/// Finds the parts of requests in a manifest, which must outlive it: each in the time that its own size takes, times
/// O(log n).
class Parts {
 public:
  explicit Parts(const Manifest& whole);
  [[nodiscard]] Part of(const Request& request) const;

 private:
  const Manifest& whole_;
  Places places_;
  std::uint64_t digest_of_replica_;
};

/// Each rank's part of the first rank's manifest. Ranks that hold the same shards in other replicas get a copy of the
/// first replica's part, which must serve them. Collective over `world`, whose ranks are those of the mesh of `shards`.
[[nodiscard]] Part share_part(const mpi::Communicator& world, const Manifest& whole, const Request& request,
                              const Shards& shards);

}  // namespace trireme::checkpoint
