// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "trireme/base/ceil_div.hpp"
#include "trireme/base/error.hpp"
#include "trireme/checkpoint/load/load.hpp"
#include "trireme/data/text/xxh3.hpp"

namespace trireme::checkpoint {
namespace {

constexpr std::size_t most_open_files = 128;

/// Range of runs of `hyperslab` that intersect [begin, end), if that is not empty: [first, last).
shard::Range runs_within(const shard::Hyperslab& hyperslab, std::int64_t begin, std::int64_t end) {
  if (hyperslab.count == 1) return {.begin = 0, .end = 1};
  const std::int64_t first =
      std::max<std::int64_t>(0, ceil_div(begin - hyperslab.first - hyperslab.length + 1, hyperslab.stride));
  return {.begin = first, .end = std::min(hyperslab.count, ceil_div(end - hyperslab.first, hyperslab.stride))};
}

/// The range of elements of `stored`, counted contiguously, that can be among those of `wanted`: [first, last).
shard::Range candidates(const shard::Hyperslab& stored, const shard::Hyperslab& wanted) {
  if (stored.count > 1) {
    const shard::Range hyperslab = runs_within(stored, wanted.first, wanted.end());
    return {.begin = hyperslab.begin * stored.length, .end = hyperslab.end * stored.length};
  }
  return {.begin = std::max<std::int64_t>(0, wanted.first - stored.first),
          .end = std::min(stored.length, wanted.end() - stored.first)};
}

/// Elements that are contiguous both in a chunk of the stored hyperslab and in the wanted one.
struct Copy {
  std::int64_t from = 0, to = 0, count = 0;
};

/// Intersection of elements `chunk` of `stored` (counted contiguously) with `wanted`. from: relative to the chunk.
std::vector<Copy> copies_of(const shard::Hyperslab& stored, shard::Range chunk, const shard::Hyperslab& wanted) {
  std::vector<Copy> copies;
  for (std::int64_t at = chunk.begin; at < chunk.end;) {
    const std::int64_t within = at % stored.length;
    const std::int64_t begin = stored.first + at / stored.length * stored.stride + within;
    const std::int64_t end = begin + std::min(stored.length - within, chunk.end - at);
    const shard::Range hyperslab = runs_within(wanted, begin, end);
    for (std::int64_t run = hyperslab.begin; run < hyperslab.end; ++run) {
      const std::int64_t run_begin = wanted.first + run * wanted.stride;
      const shard::Range common{.begin = std::max(begin, run_begin), .end = std::min(end, run_begin + wanted.length)};
      if (common.empty()) continue;
      const Copy copy{.from = at - chunk.begin + common.begin - begin,
                      .to = run * wanted.length + common.begin - run_begin,
                      .count = common.size()};
      const bool goes_on = !copies.empty() && copies.back().from + copies.back().count == copy.from &&
                           copies.back().to + copies.back().count == copy.to;
      if (goes_on)
        copies.back().count += copy.count;
      else
        copies.push_back(copy);
    }
    at += end - begin;
  }
  return copies;
}

}  // namespace

Reader::Reader(std::string path, Manifest manifest)
    : path_(std::move(path)), manifest_(std::move(manifest)), places_(manifest_) {
  for (std::size_t p = 0; p < manifest_.parameters.size(); ++p)
    index_of_[manifest_.parameters[p].name] = static_cast<int>(p);
}

const io::File& Reader::open(const SavedFile& file) {
  const auto found = open_.find(file.path);
  if (found != open_.end()) return found->second;
  if (open_.size() >= most_open_files) open_.clear();
  return open_.emplace(file.path, io::File::open(path_ + "/" + file.path)).first->second;
}

void Reader::read_chunk(const SavedFile& saved, const SavedDataset& dataset, const SavedSlice& slice,
                        std::int64_t index, std::span<float> out) {
  const io::File& file = open(saved);
  const shard::Range chunk = slice.chunk(index);
  const auto bytes = std::as_writable_bytes(out);
  file.read_at(dataset.byte_offset + 4 * (slice.offset + chunk.begin), bytes);
  if (data::xxh3(bytes) != slice.checksums[static_cast<std::size_t>(index)])
    throw CheckpointError(fmt::format("{}, dataset {}: elements {} to {} are damaged (their checksum does not fit)",
                                      file.path(), dataset.name, slice.offset + chunk.begin, slice.offset + chunk.end));
}

std::int64_t Reader::read_slice(const Place& place, const shard::Hyperslab& wanted, std::span<float> out) {
  std::int64_t found = 0;
  const SavedSlice& slice = *place.slice;
  const shard::Range elements = candidates(slice.hyperslab, wanted);
  for (std::int64_t c = elements.begin / chunk_elements; c * chunk_elements < elements.end; ++c) {
    const shard::Range chunk = slice.chunk(c);
    const std::vector<Copy> copies = copies_of(slice.hyperslab, chunk, wanted);
    if (copies.empty()) continue;
    for (const Copy& copy : copies) found += copy.count;
    const auto size = static_cast<std::size_t>(chunk.size());
    if (copies.front().count == chunk.size()) {
      read_chunk(*place.file, *place.dataset, slice, c, out.subspan(static_cast<std::size_t>(copies.front().to), size));
      continue;
    }
    chunk_.resize(size);
    read_chunk(*place.file, *place.dataset, slice, c, chunk_);
    for (const Copy& copy : copies)
      std::memcpy(out.data() + copy.to, chunk_.data() + copy.from,
                  sizeof(float) * static_cast<std::size_t>(copy.count));
  }
  return found;
}

void Reader::read(Quantity quantity, std::string_view parameter, const shard::Hyperslab& elements,
                  std::span<float> out) {
  const auto index = index_of_.find(parameter);
  invariant(index != index_of_.end(), "the parameter is in the checkpoint");
  std::int64_t found = 0;
  for (const Place& place : places_.of(quantity, index->second, elements)) found += read_slice(place, elements, out);
  invariant(found == elements.size(), "the manifest has all slices that a rank reads");
}

}  // namespace trireme::checkpoint
