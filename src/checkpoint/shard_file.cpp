// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/shard_file.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "checkpoint/checksum.hpp"
#include "checkpoint/hdf5.hpp"
#include "checkpoint/room.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/shard/copies.hpp"

namespace trireme::checkpoint {
namespace {

constexpr std::int64_t width = 4;  // bytes of an element
// At most what HDF5 adds: groups; headers, links and the way to the next page.
constexpr std::int64_t hdf5_bytes = 1 << 16;
constexpr std::int64_t hdf5_bytes_a_dataset = 1 << 13;

/// A dataset to be written, and which part of a shard it takes.
struct Planned {
  SavedDataset dataset;
  ParamBlock block{0};
  std::int64_t begin = 0;  ///< of its first element, in the shard
};

/// The slices of a block's part, with offsets from the beginning of the part.
std::vector<SavedSlice> slices_of_part(const Shards& shards, ParamBlock block, shard::Range part, int first_parameter) {
  std::vector<SavedSlice> slices;
  for (const shard::Slice& slice :
       shard::whole_slices(shards.model[block], shards.layout[block], shards.at.shard, shard::Copies::first)) {
    const std::int64_t begin = std::max(slice.offset, part.begin);
    const std::int64_t end = std::min(slice.offset + slice.elements.size(), part.end);
    if (begin >= end) continue;
    const std::int64_t first = slice.elements.begin + begin - slice.offset;
    slices.push_back({.parameter = first_parameter + slice.parameter,
                      .elements = {.begin = first, .end = first + end - begin},
                      .offset = begin - part.begin,
                      .checksums = {}});
  }
  return slices;
}

std::vector<Planned> plan(const Shards& shards) {
  std::vector<Planned> planned;
  for (const Quantity quantity : all_quantities) {
    int first_parameter = 0;
    for (int b = 0; b < shards.model.param_blocks(); ++b) {
      const ParamBlock block{b};
      const shard::Range part =
          part_of_shard(shards.layout[block].shard_elements(), shards.at.replicate, shards.mesh.replicate);
      SavedDataset dataset{.name = fmt::format("{}/{}", to_text(quantity), shards.model[block].name),
                           .quantity = quantity,
                           .elements = part.size(),
                           .slices = slices_of_part(shards, block, part, first_parameter)};
      first_parameter += shards.layout[block].parameters();
      if (dataset.slices.empty()) continue;  // padding only
      planned.push_back({std::move(dataset), block, part.begin});
    }
  }
  return planned;
}

/// At most what the file will have.
std::int64_t most_bytes(const std::vector<Planned>& planned) {
  std::int64_t bytes = hdf5_bytes;
  for (const Planned& one : planned) bytes += width * one.dataset.elements + hdf5_bytes_a_dataset;
  return bytes;
}

/// An HDF5 file with all datasets in place and nothing in them.
void lay_out(const std::string& path, std::vector<Planned>& planned) {
  const h5::Hdf5Lock lock;
  h5::Writer file(path);
  for (const Quantity quantity : all_quantities) file.group(std::string(to_text(quantity)));
  for (Planned& one : planned) {
    file.reserved_floats(one.dataset.name, static_cast<hsize_t>(one.dataset.elements));
    one.dataset.byte_offset = static_cast<std::int64_t>(file.byte_offset(one.dataset.name));
  }
  (void)fault::point("ckpt.close");
  file.close();
}

void write_slices(File& file, const Shards& shards, Planned& planned) {
  const float* const values = shards.values(planned.dataset.quantity, planned.block).data() + planned.begin;
  for (SavedSlice& slice : planned.dataset.slices)
    for (std::int64_t at = 0; at < slice.elements.size(); at += chunk_elements) {
      const std::int64_t count = std::min(chunk_elements, slice.elements.size() - at);
      const std::int64_t first = slice.offset + at;
      const auto bytes = std::as_bytes(std::span(values + first, static_cast<std::size_t>(count)));
      slice.checksums.push_back(checksum(bytes));
      file.write_at(planned.dataset.byte_offset + width * first, bytes);
    }
}

}  // namespace

shard::Range part_of_shard(std::int64_t elements, int replica, int replicas) {
  const std::int64_t units = elements / shard::alignment;
  return {.begin = units * replica / replicas * shard::alignment,
          .end = units * (replica + 1) / replicas * shard::alignment};
}

std::int64_t data_bytes(const shard::Layout& layout) {
  return static_cast<std::int64_t>(all_quantities.size()) * width * layout.padded();
}

std::vector<shard::Range> slice_bytes(const SavedFile& file) {
  std::vector<shard::Range> ranges;
  for (const SavedDataset& dataset : file.datasets)
    for (const SavedSlice& slice : dataset.slices) {
      const std::int64_t begin = dataset.byte_offset + width * slice.offset;
      ranges.push_back({.begin = begin, .end = begin + width * slice.elements.size()});
    }
  std::sort(ranges.begin(), ranges.end(), [](auto& a, auto& b) { return a.begin < b.begin; });
  return ranges;
}

std::uint64_t hash_rest(const File& file, const SavedFile& saved) {
  Checksum checksum;
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

SavedFile write_shard_file(const std::string& path, const Shards& shards) {
  SavedFile saved{.path = shard_path(shards.dp_rank(), shards.at.tensor),
                  .dp_rank = shards.dp_rank(),
                  .tensor_rank = shards.at.tensor,
                  .datasets = {}};
  const std::string name = path + "/" + saved.path;
  std::vector<Planned> planned = plan(shards);
  require_room(name, most_bytes(planned));
  lay_out(name, planned);
  {
    File file = File::update(name);
    file.reserve(file.size());
    for (Planned& one : planned) {
      write_slices(file, shards, one);
      (void)fault::point("ckpt.write");
      saved.datasets.push_back(std::move(one.dataset));
    }
    (void)fault::point("ckpt.sync");
    file.sync_and_close();
  }
  const File written = File::open(name);
  saved.bytes = written.size();
  saved.rest = hash_rest(written, saved);
  return saved;
}

}  // namespace trireme::checkpoint
