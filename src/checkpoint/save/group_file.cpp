// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/save/group_file.hpp"

#include <cstring>

#include "base/io/disk_space.hpp"
#include "checkpoint/save/fill_file.hpp"
#include "trireme/base/error.hpp"
#include "trireme/mpi/broadcast.hpp"
#include "trireme/mpi/collective_try.hpp"
#include "trireme/mpi/gather.hpp"

namespace trireme::checkpoint {
namespace {

/// Space for the first `bytes` bytes of a file that is there.
void reserve(const std::string& name, std::int64_t bytes) {
  io::require_file_size(name, bytes);
  io::File::update(name).reserve(bytes);
}

/// Where the group's first rank has placed the datasets, on every rank. Collective.
void share_offsets(const mpi::Communicator& group, std::vector<PlannedDataset>& planned) {
  std::string offsets(planned.size() * sizeof(std::int64_t), '\0');
  for (std::size_t d = 0; d < planned.size(); ++d)
    std::memcpy(offsets.data() + d * sizeof(std::int64_t), &planned[d].dataset.byte_offset, sizeof(std::int64_t));
  offsets = mpi::broadcast_text(group, std::move(offsets));
  invariant(offsets.size() == planned.size() * sizeof(std::int64_t), "all ranks of a group plan the same datasets");
  for (std::size_t d = 0; d < planned.size(); ++d)
    std::memcpy(&planned[d].dataset.byte_offset, offsets.data() + d * sizeof(std::int64_t), sizeof(std::int64_t));
}

/// Every rank's checksums in the slices of the group's first one. Collective.
void gather_checksums(const mpi::Communicator& group, int first_dp_rank, std::vector<PlannedDataset>& planned) {
  const auto slices_of = [&](int dp_rank, auto&& visit) {
    for (PlannedDataset& one : planned)
      for (const PlannedPart& part : one.parts)
        if (part.dp_rank == dp_rank)
          for (std::size_t s = part.first_slice; s < part.end_slice; ++s) visit(one.dataset.slices[s]);
  };
  std::string mine;
  slices_of(first_dp_rank + group.rank(), [&](const SavedSlice& slice) {
    const auto bytes = std::as_bytes(std::span(slice.checksums));
    mine.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  const std::vector<std::string> all = mpi::gather_texts(group, mine);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    std::size_t at = 0;
    slices_of(first_dp_rank + static_cast<int>(rank), [&](SavedSlice& slice) {
      slice.checksums.resize(static_cast<std::size_t>(slice.chunks()));
      const std::size_t bytes = slice.checksums.size() * sizeof(std::uint64_t);
      invariant(at + bytes <= all[rank].size(), "a rank sends the checksums of all its slices");
      std::memcpy(slice.checksums.data(), all[rank].data() + at, bytes);
      at += bytes;
    });
  }
}

}  // namespace

WrittenFile write_group_file(const mpi::Communicator& group, const std::string& path, const Shards& shards,
                             std::int64_t ranks_per_file, const Meanwhile& meanwhile) {
  const bool first = group.rank() == 0;
  SavedFile saved{.pipeline_rank = shards.at.pipeline, .tensor_rank = shards.at.tensor, .datasets = {}};
  std::string name;
  std::vector<PlannedDataset> planned;
  mpi::collective_try(group, "lay out a shared file", [&] {
    const Writers writers = writers_of(shards.mesh, shards.dp_rank(), ranks_per_file);
    saved.dp_rank = writers.first;
    saved.path = shard_path(shards.mesh, shards.at.pipeline, writers.first, shards.at.tensor);
    name = path + "/" + saved.path;
    planned = plan_file(shards, writers);
    if (first) lay_out(name, planned);
  });
  share_offsets(group, planned);
  // Each asks for itself: ranks of several nodes may have several limits.
  mpi::collective_try(group, "reserve space in a shared file", [&] { reserve(name, io::status_of(name).bytes); });
  std::vector<WrittenChunk> chunks;
  mpi::collective_try(group, "fill a shared file", [&] { chunks = fill(name, shards, planned, meanwhile); });
  gather_checksums(group, saved.dp_rank, planned);
  if (first) return described(path, std::move(saved), planned, std::move(chunks));
  WrittenFile written{.first = false, .saved = std::move(saved), .datasets = {}, .chunks = std::move(chunks)};
  for (const PlannedDataset& one : planned) written.datasets.push_back(one.dataset.name);
  return written;
}

}  // namespace trireme::checkpoint
