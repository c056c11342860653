// SPDX-License-Identifier: Apache-2.0
#include "data/fingerprint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "trireme/base/hash.hpp"
#include "trireme/base/philox.hpp"

namespace trireme::data {
namespace {

constexpr std::int64_t block_bytes = 16 << 10;

/// The hash of `bytes` bytes from `offset` on, as text.
std::string hash_at(const io::InputFile& file, std::int64_t offset, std::int64_t bytes) {
  std::string block(static_cast<std::size_t>(bytes), '\0');
  file.read_at(offset, std::as_writable_bytes(std::span(block)));
  return fmt::format("{:x} ", fnv1a(block));
}

/// First byte of part `i` of `parts` equal parts of a file.
std::int64_t part_begin(std::int64_t bytes, std::int64_t parts, std::int64_t i) {
  return bytes / parts * i + bytes % parts * i / parts;
}

/// One of `places` places of part `i`.
std::int64_t drawn(std::uint64_t key, std::int64_t i, std::int64_t places) {
  const auto words = philox4x32(key, static_cast<std::uint64_t>(i));
  const std::uint64_t number = (static_cast<std::uint64_t>(words[1]) << 32) | words[0];
  return static_cast<std::int64_t>(number % static_cast<std::uint64_t>(places));
}

}  // namespace

std::string sampled_hash(const io::InputFile& file, std::int64_t most_blocks,
                         const std::function<void()>& after_block) {
  std::string hashes;
  const auto add = [&](std::int64_t offset, std::int64_t bytes) {
    hashes += hash_at(file, offset, bytes);
    if (after_block) after_block();
  };
  if (file.size() <= most_blocks * block_bytes) {
    for (std::int64_t at = 0; at < file.size(); at += block_bytes) add(at, std::min(block_bytes, file.size() - at));
    return hashes;
  }
  const std::uint64_t key = stream_key(static_cast<std::uint64_t>(file.size()), "data.fingerprint");
  for (std::int64_t i = 0; i < most_blocks; ++i) {
    const std::int64_t begin = part_begin(file.size(), most_blocks, i);
    const std::int64_t places = part_begin(file.size(), most_blocks, i + 1) - begin - block_bytes + 1;
    // The first block of the first part and the last of the last: headers, and where files grow and break off.
    std::int64_t place = 0;
    if (i + 1 == most_blocks) place = places - 1;
    if (i > 0 && i + 1 < most_blocks) place = drawn(key, i, places);
    add(begin + place, block_bytes);
  }
  return hashes;
}

std::string whole_hash(const io::InputFile& file) {
  constexpr std::int64_t at_once = 1 << 20;
  std::uint64_t hash = 0;
  for (std::int64_t at = 0; at < file.size(); at += at_once)
    hash = fnv1a(fmt::format("{:x} ", hash) + hash_at(file, at, std::min(at_once, file.size() - at)));
  return fmt::format("index {} {:x}", file.size(), hash);
}

}  // namespace trireme::data
