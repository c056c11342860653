// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/save/fill_file.hpp"

#include "base/io/disk_space.hpp"
#include "checkpoint/hdf5.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/data/text/xxh3.hpp"

namespace trireme::checkpoint {
namespace {

constexpr std::int64_t width = 4;  // bytes of an element

void write_slice(io::File& file, const float* values, const SavedDataset& dataset, std::size_t index, SavedSlice& slice,
                 std::vector<WrittenChunk>& chunks) {
  for (std::int64_t c = 0; c < slice.chunks(); ++c) {
    const shard::Range chunk = slice.chunk(c);
    const auto bytes = std::as_bytes(std::span(values + chunk.begin, static_cast<std::size_t>(chunk.size())));
    slice.checksums.push_back(data::xxh3(bytes));
    const std::int64_t at = dataset.byte_offset + width * (slice.offset + chunk.begin);
    file.write_at(at, bytes);
    chunks.push_back({.dataset = index,
                      .bytes = {.begin = at, .end = at + width * chunk.size()},
                      .checksum = slice.checksums.back()});
  }
}

/// Groups, and the planned datasets with nothing in them; notes where they lie.
void place_datasets(h5::Writer& file, std::vector<PlannedDataset>& planned) {
  for (const Quantity quantity : all_quantities) file.group(std::string(to_text(quantity)));
  for (PlannedDataset& one : planned)
    one.dataset.byte_offset =
        static_cast<std::int64_t>(file.reserved_floats(one.dataset.name, static_cast<hsize_t>(one.dataset.elements)));
}

}  // namespace

void lay_out(const std::string& name, std::vector<PlannedDataset>& planned) {
  io::require_disk_space(name, most_bytes(planned));
  {
    const h5::Hdf5Lock lock;
    h5::Writer writer(name);
    place_datasets(writer, planned);
    (void)fault::point("ckpt.close");
    writer.close();
  }
  io::File file = io::File::update(name);
  file.reserve(file.size());
}

std::vector<WrittenChunk> fill(const std::string& name, const Shards& shards, std::vector<PlannedDataset>& planned,
                               const Meanwhile& meanwhile) {
  std::vector<WrittenChunk> chunks;
  io::File file = io::File::update(name);
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

WrittenFile described(const std::string& path, SavedFile saved, std::vector<PlannedDataset>& planned,
                      std::vector<WrittenChunk> chunks) {
  WrittenFile written{.first = true, .saved = std::move(saved), .datasets = {}, .chunks = std::move(chunks)};
  for (PlannedDataset& one : planned) {
    written.datasets.push_back(one.dataset.name);
    written.saved.datasets.push_back(std::move(one.dataset));
  }
  const io::File file = io::File::open(path + "/" + written.saved.path);
  written.saved.bytes = file.size();
  written.saved.rest = hash_rest(file, written.saved);
  return written;
}

}  // namespace trireme::checkpoint
