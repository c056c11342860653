// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/save/shard_file.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "checkpoint/save/fill_file.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/data/text/xxh3.hpp"

namespace trireme::checkpoint {
namespace {

constexpr std::int64_t element_bytes = 4;

}  // namespace

std::int64_t data_bytes(const Shards& shards) {
  const shard::Layout layout(shards.whole_model(), shards.mesh.shard);
  return static_cast<std::int64_t>(all_quantities.size()) * element_bytes * layout.shard_elements() *
         shards.mesh.shard * shards.mesh.tensor;
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

WrittenFile write_shard_file(const std::string& path, const Shards& shards, const Meanwhile& meanwhile) {
  SavedFile saved{.path = shard_path(shards.mesh, shards.at.pipeline, shards.dp_rank(), shards.at.tensor),
                  .pipeline_rank = shards.at.pipeline,
                  .dp_rank = shards.dp_rank(),
                  .tensor_rank = shards.at.tensor,
                  .datasets = {}};
  const std::string name = path + "/" + saved.path;
  std::vector<PlannedDataset> planned = plan_file(shards, {.first = shards.dp_rank(), .count = 1});
  lay_out(name, planned);
  std::vector<WrittenChunk> chunks = fill(name, shards, planned, meanwhile);
  return described(path, std::move(saved), planned, std::move(chunks));
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
