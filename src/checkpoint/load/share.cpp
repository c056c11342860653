// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/load/share.hpp"

#include <algorithm>
#include <iterator>
#include <string>

#include "checkpoint/manifest_bytes.hpp"
#include "trireme/mpi/broadcast.hpp"

namespace trireme::checkpoint {
namespace {

constexpr std::int64_t chunks_at_once = 1 << 18;  // some megabytes

/// Slices and checksums of a file: what its description is made of.
std::int64_t weight(const SavedFile& file) {
  std::int64_t sum = 1;
  for (const SavedDataset& dataset : file.datasets)
    for (const SavedSlice& slice : dataset.slices) sum += 8 + static_cast<std::int64_t>(slice.checksums.size());
  return sum;
}

Manifest head_of(const Manifest& whole) {
  return {.state = whole.state,
          .mesh = whole.mesh,
          .ranks_per_file = whole.ranks_per_file,
          .model = whole.model,
          .versions = whole.versions,
          .parameters = whole.parameters,
          .files = {},
          .digests = whole.digests};
}

}  // namespace

bool may_overlap(const shard::Hyperslab& a, const shard::Hyperslab& b) {
  if (a.first >= b.end() || b.first >= a.end()) return false;
  if (a.count == 1 || b.count == 1 || a.stride != b.stride) return true;
  const std::int64_t column_of_a = a.first % a.stride, column_of_b = b.first % b.stride;
  return column_of_a < column_of_b + b.length && column_of_b < column_of_a + a.length;
}

SavedFile part_of(const SavedFile& file, const Wanted& wanted) {
  SavedFile part{.path = file.path,
                 .dp_rank = file.dp_rank,
                 .tensor_rank = file.tensor_rank,
                 .bytes = file.bytes,
                 .rest = file.rest,
                 .datasets = {}};
  for (const SavedDataset& dataset : file.datasets) {
    SavedDataset some{.name = dataset.name,
                      .quantity = dataset.quantity,
                      .elements = dataset.elements,
                      .byte_offset = dataset.byte_offset,
                      .slices = {}};
    std::ranges::copy_if(dataset.slices, std::back_inserter(some.slices),
                         [&](const SavedSlice& slice) { return wanted(dataset.quantity, slice); });
    if (!some.slices.empty()) part.datasets.push_back(std::move(some));
  }
  return part;
}

Manifest share_head(const mpi::Communicator& world, const Manifest& whole) {
  return decode(mpi::broadcast_text(world, world.rank() == 0 ? encode(head_of(whole)) : std::string()));
}

std::vector<SavedFile> share_files(const mpi::Communicator& world, const std::vector<SavedFile>& all,
                                   const Wanted& wanted) {
  std::vector<SavedFile> mine;
  for (auto next = all.begin();;) {
    std::vector<SavedFile> some;
    for (std::int64_t chunks = 0; next != all.end() && chunks < chunks_at_once; ++next) {
      chunks += weight(*next);
      some.push_back(*next);
    }
    some = decode_files(mpi::broadcast_text(world, encode(std::move(some))));
    if (some.empty()) return mine;  // the first rank has none left
    for (const SavedFile& file : some)
      if (SavedFile part = part_of(file, wanted); !part.datasets.empty()) mine.push_back(std::move(part));
  }
}

}  // namespace trireme::checkpoint
