// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace trireme::checkpoint::h5 {

/// The pages of a file that were written; all others are holes. So a file of gigabytes whose values are written by
/// others takes as much memory as what describes them. HDF5's own driver for memory (core) would allocate and clear all
/// of it.
class MemoryFile {
 public:
  /// Never throws: where memory ends the bytes are dropped, and `copy_to` throws. HDF5 can neither write nor forget a
  /// file whose writes fail.
  void write(std::uint64_t at, std::span<const std::byte> bytes) noexcept;
  /// Holes, and what is behind the end, are zeros.
  void read(std::uint64_t at, std::span<std::byte> bytes) const noexcept;
  /// Makes the file end at `bytes`.
  void resize(std::uint64_t bytes) noexcept { size_ = bytes; }
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// Writes it to `path`, holes as holes. Throws WriteError.
  void copy_to(const std::string& path) const;

 private:
  static constexpr std::size_t page = 4096;
  std::map<std::uint64_t, std::array<std::byte, page>> pages_;  ///< by number
  std::uint64_t size_ = 0;
  bool incomplete_ = false;
};

}  // namespace trireme::checkpoint::h5
