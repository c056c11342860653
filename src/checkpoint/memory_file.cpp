// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/memory_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/base/io/file.hpp"

namespace trireme::checkpoint::h5 {

void MemoryFile::write(std::uint64_t at, std::span<const std::byte> bytes) noexcept {
  size_ = std::max<std::uint64_t>(size_, at + bytes.size());
  while (!bytes.empty()) {
    const std::size_t offset = at % page;
    const std::size_t count = std::min(page - offset, bytes.size());
    try {
      std::copy_n(bytes.begin(), count, pages_[at / page].begin() + static_cast<std::ptrdiff_t>(offset));
    } catch (const std::bad_alloc&) {
      incomplete_ = true;
      return;
    }
    at += count;
    bytes = bytes.subspan(count);
  }
}

void MemoryFile::read(std::uint64_t at, std::span<std::byte> bytes) const noexcept {
  while (!bytes.empty()) {
    const std::size_t offset = at % page;
    const std::size_t count = std::min(page - offset, bytes.size());
    const auto found = pages_.find(at / page);
    if (found == pages_.end())
      std::fill_n(bytes.begin(), count, std::byte{});
    else
      std::copy_n(found->second.begin() + static_cast<std::ptrdiff_t>(offset), count, bytes.begin());
    at += count;
    bytes = bytes.subspan(count);
  }
}

void MemoryFile::copy_to(const std::string& path) const {
  if (incomplete_) throw WriteError(fmt::format("{}: there is not enough memory to lay it out", path));
  constexpr std::size_t at_once = 1 << 20;
  io::File file = io::File::create(path);
  file.resize(static_cast<std::int64_t>(size_));
  std::vector<std::byte> bytes;
  for (auto it = pages_.begin(); it != pages_.end() && it->first * page < size_;) {
    const std::uint64_t first = it->first;
    bytes.clear();
    for (; it != pages_.end() && it->first == first + bytes.size() / page && bytes.size() < at_once; ++it)
      bytes.insert(bytes.end(), it->second.begin(), it->second.end());
    bytes.resize(std::min<std::uint64_t>(bytes.size(), size_ - first * page));
    file.write_at(static_cast<std::int64_t>(first * page), bytes);
  }
}

}  // namespace trireme::checkpoint::h5
