// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hdf5.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/hdf5.hpp"

/// Layout of files by HDF5, in memory. Equal calls give equal images, on every rank.
namespace trireme::checkpoint::h5 {

/// A file as HDF5 laid it out: its written pages; all other bytes are holes. An image of gigabytes of reserved datasets
/// takes the memory of its metadata only, where HDF5's own driver for memory (core) allocates and clears all of it.
class Image {
 public:
  /// Never throws: HDF5 can neither write nor forget a file with failed writes. Where memory ends, bytes are dropped
  /// and `write_file` throws.
  void write(std::uint64_t at, std::span<const std::byte> bytes) noexcept;
  /// Holes and bytes behind the end are zeros.
  void read(std::uint64_t at, std::span<std::byte> bytes) const noexcept;
  /// Makes the file end at `bytes`.
  void resize(std::uint64_t bytes) noexcept { size_ = bytes; }
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// XXH3 of size, positions and bytes of the pages.
  [[nodiscard]] std::uint64_t hash() const;
  /// Creates the file `path`, holes as holes. Throws WriteError.
  void write_file(const std::string& path) const;

 private:
  static constexpr std::size_t page = 4096;
  std::map<std::uint64_t, std::array<std::byte, page>> pages_;  ///< by number
  std::uint64_t size_ = 0;
  bool incomplete_ = false;
};

/// Makes an Image by HDF5 calls. Every failure is a WriteError with HDF5's reason. Used with a Hdf5Lock held.
class ImageBuilder {
 public:
  /// Begins a file: metadata checksummed by HDF5 (superblock 3), large datasets aligned to pages.
  ImageBuilder();

  void group(const std::string& name);
  /// A contiguous 1-D dataset of little-endian fp32 whose bytes stay holes: [elements], at least 1. Returns the byte of
  /// the file where they begin.
  [[nodiscard]] std::int64_t reserve_floats(const std::string& name, std::int64_t elements);
  /// A 1-D dataset of bytes.
  void bytes(const std::string& name, std::string_view text);
  /// A fp32 dataset of `shape` made of other files' datasets, as `creation` maps them.
  void virtual_floats(const std::string& name, std::span<const hsize_t> shape, const Properties& creation);
  void attribute(const std::string& name, const std::string& text);
  void attribute(const std::string& name, std::int64_t value);
  void attribute(const std::string& name, double value);
  /// The complete file; the builder is used up.
  [[nodiscard]] Image finish();

  /// Returns `id` unless it is negative. what: "create dataset model/b0".
  static hid_t check(hid_t id, std::string_view what);

 private:
  void scalar(const std::string& name, hid_t type, const void* value);

  std::shared_ptr<Image> image_;  ///< shared with HDF5, which keeps a file that it could not close
  File file_;
};

}  // namespace trireme::checkpoint::h5
