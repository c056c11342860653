// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/save/shard_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/io/disk_space.hpp"
#include "checkpoint/hdf5_image.hpp"
#include "checkpoint/save/shard_plan.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/data/text/xxh3.hpp"
#include "trireme/mpi/collective_try.hpp"
#include "trireme/mpi/gather.hpp"

namespace trireme::checkpoint {
namespace {

constexpr std::int64_t element_bytes = 4;

/// The image of a file with all planned datasets and none of their values; notes where they begin.
h5::Image lay_out(std::vector<PlannedDataset>& planned) {
  const h5::Hdf5Lock lock;
  h5::ImageBuilder builder;
  for (const Quantity quantity : all_quantities) builder.group(std::string(to_text(quantity)));
  for (PlannedDataset& one : planned)
    one.dataset.byte_offset = builder.reserve_floats(one.dataset.name, one.dataset.elements);
  (void)fault::point("ckpt.close");
  return builder.finish();
}

void write_slice(io::File& file, const float* values, const SavedDataset& dataset, std::size_t index, SavedSlice& slice,
                 std::vector<WrittenChunk>& chunks) {
  for (std::int64_t c = 0; c < slice.chunks(); ++c) {
    const shard::Range chunk = slice.chunk(c);
    const auto bytes = std::as_bytes(std::span(values + chunk.begin, static_cast<std::size_t>(chunk.size())));
    slice.checksums.push_back(data::xxh3(bytes));
    const std::int64_t at = dataset.byte_offset + element_bytes * (slice.offset + chunk.begin);
    file.write_at(at, bytes);
    chunks.push_back({.dataset = index,
                      .bytes = {.begin = at, .end = at + element_bytes * chunk.size()},
                      .checksum = slice.checksums.back()});
  }
}

/// Writes this rank's values to their places in `file`, hashing them on the way, calls `meanwhile`, and flushes them to
/// disk. Throws WriteError.
std::vector<WrittenChunk> fill(io::File& file, const Shards& shards, std::vector<PlannedDataset>& planned,
                               const Meanwhile& meanwhile) {
  std::vector<WrittenChunk> chunks;
  for (std::size_t d = 0; d < planned.size(); ++d) {
    SavedDataset& dataset = planned[d].dataset;
    for (const PlannedPart& part : planned[d].parts) {
      if (part.dp_rank != shards.dp_rank()) continue;
      const float* const values = shards.values(dataset.quantity, planned[d].block).data() + part.begin;
      for (std::size_t s = part.first_slice; s < part.end_slice; ++s) {
        SavedSlice& slice = dataset.slices[s];
        write_slice(file, values + slice.offset - part.offset, dataset, d, slice, chunks);
      }
    }
    (void)fault::point("ckpt.write");
  }
  meanwhile();
  (void)fault::point("ckpt.sync");
  file.sync_and_close();
  return chunks;
}

/// Places every rank's checksums in the slices of the group's first rank, and compares the hashes of their images.
/// Collective.
void gather_checksums(const mpi::Communicator& group, int first_dp_rank, std::uint64_t image,
                      std::vector<PlannedDataset>& planned) {
  const auto slices_of = [&](int dp_rank, auto&& visit) {
    for (PlannedDataset& one : planned)
      for (const PlannedPart& part : one.parts)
        if (part.dp_rank == dp_rank)
          for (std::size_t s = part.first_slice; s < part.end_slice; ++s) visit(one.dataset.slices[s]);
  };
  std::string mine;
  const auto append = [&](std::span<const std::uint64_t> words) {
    const auto bytes = std::as_bytes(words);
    mine.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  append({&image, 1});
  slices_of(first_dp_rank + group.rank(), [&](const SavedSlice& slice) { append(slice.checksums); });
  const std::vector<std::string> all = mpi::gather_texts(group, mine);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    std::size_t at = 0;
    const auto take = [&](std::span<std::uint64_t> words) {
      invariant(at + words.size_bytes() <= all[rank].size(), "a rank sends the checksums of all its slices");
      std::memcpy(words.data(), all[rank].data() + at, words.size_bytes());
      at += words.size_bytes();
    };
    std::uint64_t its_image = 0;
    take({&its_image, 1});
    invariant(its_image == image, "all ranks of a group lay its file out alike");
    slices_of(first_dp_rank + static_cast<int>(rank), [&](SavedSlice& slice) {
      slice.checksums.resize(static_cast<std::size_t>(slice.chunks()));
      take(slice.checksums);
    });
  }
}

/// The contents of a file whose values are all on disk. Throws CheckpointError.
void describe(const std::string& path, std::vector<PlannedDataset>& planned, SavedFile& saved) {
  for (PlannedDataset& one : planned) saved.datasets.push_back(std::move(one.dataset));
  const io::File file = io::File::open(path + "/" + saved.path);
  saved.bytes = file.size();
  saved.rest = hash_rest(file, saved);
}

}  // namespace

std::int64_t data_bytes(const Shards& shards) {
  const shard::Layout layout(shards.whole_model(), shards.mesh.shard);
  return shards.optimizer.saved_bytes(shards.whole_model(), layout).value * shards.mesh.shard * shards.mesh.tensor;
}

std::vector<shard::Range> slice_bytes(const SavedFile& file) {
  std::vector<shard::Range> ranges;
  for (const SavedDataset& dataset : file.datasets)
    for (const SavedSlice& slice : dataset.slices) {
      const std::int64_t begin = dataset.byte_offset + element_bytes * slice.offset;
      ranges.push_back({.begin = begin, .end = begin + element_bytes * slice.hyperslab.size()});
    }
  std::sort(ranges.begin(), ranges.end(), [](auto& a, auto& b) { return a.begin < b.begin; });
  return ranges;
}

std::uint64_t hash_rest(const io::File& file, const SavedFile& saved) {
  data::Xxh3 checksum;
  std::vector<std::byte> buffer(std::size_t{1} << 16);
  const auto add = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end;) {
      const auto count = std::min<std::int64_t>(static_cast<std::int64_t>(buffer.size()), end - at);
      const std::span bytes(buffer.data(), static_cast<std::size_t>(count));
      file.read_at(at, bytes);
      checksum.add(bytes);
      at += count;
    }
  };
  std::int64_t at = 0;
  for (const shard::Range& slice : slice_bytes(saved)) {
    add(at, slice.begin);
    at = std::max(at, slice.end);
  }
  add(at, saved.bytes);
  return checksum.value();
}

WrittenFile write_shard_file(const mpi::Communicator* group, const std::string& path, const Shards& shards,
                             std::int64_t ranks_per_file, const Meanwhile& meanwhile) {
  const bool first = group == nullptr || group->rank() == 0;
  const auto on_all = [&](std::string_view what, const std::function<void()>& work) {
    group == nullptr ? work() : mpi::collective_try(*group, what, work);
  };
  const Writers writers = writers_of(shards.mesh, shards.dp_rank(), ranks_per_file);
  WrittenFile written{.first = first,
                      .saved = {.path = shard_path(shards.mesh, shards.at.pipeline, writers.first, shards.at.tensor),
                                .pipeline_rank = shards.at.pipeline,
                                .dp_rank = writers.first,
                                .tensor_rank = shards.at.tensor,
                                .datasets = {}}};
  const std::string name = path + "/" + written.saved.path;
  std::vector<PlannedDataset> planned;
  std::int64_t bytes = 0;
  std::uint64_t image_hash = 0;
  on_all("lay out a shard file", [&] {
    planned = plan_file(shards, writers);
    const h5::Image image = lay_out(planned);
    bytes = static_cast<std::int64_t>(image.size());
    image_hash = image.hash();
    io::require_file_size(name, bytes);
    if (first) image.write_file(name);
  });
  on_all("fill a shard file", [&] {
    io::File file = io::File::update(name);
    file.reserve(bytes);  // ranks of several nodes may have several quotas
    written.chunks = fill(file, shards, planned, meanwhile);
  });
  if (group != nullptr) gather_checksums(*group, writers.first, image_hash, planned);
  for (const PlannedDataset& one : planned) written.datasets.push_back(one.dataset.name);
  if (first) describe(path, planned, written.saved);
  return written;
}

void read_back(const std::string& path, const WrittenFile& written) {
  const io::File file = io::File::open(path + "/" + written.saved.path);
  file.forget_pages();
  std::vector<std::byte> buffer;
  for (const WrittenChunk& chunk : written.chunks) {
    buffer.resize(static_cast<std::size_t>(chunk.bytes.size()));
    file.read_at(chunk.bytes.begin, buffer);
    if (fault::point("ckpt.readback")) buffer.front() ^= std::byte{1};
    if (data::xxh3(buffer) != chunk.checksum)
      throw CheckpointError(
          fmt::format("{}, dataset {}: bytes {} to {} read back differently from what was written; "
                      "do not trust this disk",
                      file.path(), written.datasets[chunk.dataset], chunk.bytes.begin, chunk.bytes.end));
  }
  if (written.first && (file.size() != written.saved.bytes || hash_rest(file, written.saved) != written.saved.rest))
    throw CheckpointError(
        fmt::format("{}: HDF5's own data read back differently from what was written; do not trust "
                    "this disk",
                    file.path()));
}

}  // namespace trireme::checkpoint
