// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hdf5.h>

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "checkpoint/memory_file.hpp"

/// Owned handles of HDF5, and its errors as ours. HDF5 is not thread-safe: callers hold a `Hdf5Lock`.
namespace trireme::checkpoint::h5 {

/// The one lock around HDF5 in this process. While it is held, HDF5 prints nothing.
class Hdf5Lock {
 public:
  /// Throws EnvironmentError when HDF5 is another one than the program was built with.
  Hdf5Lock();

 private:
  std::scoped_lock<std::mutex> lock_;
};

/// Innermost reason in HDF5's error stack of the last call that failed.
[[nodiscard]] std::string last_reason();

/// Owns an identifier of HDF5.
template <herr_t (*Close)(hid_t)>
class Handle {
 public:
  explicit Handle(hid_t id = H5I_INVALID_HID) : id_(id) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (id_ >= 0) Close(id_);
  }
  [[nodiscard]] hid_t id() const { return id_; }
  /// Closes it now; false when HDF5 failed.
  [[nodiscard]] bool close() { return Close(release()) >= 0; }
  /// Releases it without closing it.
  hid_t release() { return std::exchange(id_, H5I_INVALID_HID); }

 private:
  hid_t id_;
};

using File = Handle<H5Fclose>;
using Group = Handle<H5Gclose>;
using Dataset = Handle<H5Dclose>;
using Space = Handle<H5Sclose>;
using Type = Handle<H5Tclose>;
using Attribute = Handle<H5Aclose>;
using Properties = Handle<H5Pclose>;

/// A file that is being made in memory, and written when it is closed: a disk that fails under HDF5 leaves it with a
/// file that it can neither write nor forget, and it crashes at the end of MPI. Every failure is a WriteError with the
/// path, the dataset and the reason.
class Writer {
 public:
  /// Begins a file, its metadata checksummed by HDF5 (superblock 3), large datasets aligned to pages.
  explicit Writer(std::string path);

  void group(const std::string& name);
  /// A contiguous 1-D dataset of little-endian fp32 whose space is reserved, not written: [elements], at least 1.
  /// Returns the byte of the file where its raw data begins.
  [[nodiscard]] haddr_t reserved_floats(const std::string& name, hsize_t elements);
  /// A 1-D dataset of bytes.
  void bytes(const std::string& name, std::string_view text);
  /// A fp32 dataset of `shape` made of other files' datasets, as `creation` maps them.
  void virtual_floats(const std::string& name, std::span<const hsize_t> shape, const Properties& creation);
  void attribute(const std::string& name, const std::string& text);
  void attribute(const std::string& name, std::int64_t value);
  void attribute(const std::string& name, double value);
  /// Writes the file to its path; datasets of which nothing was written become holes of the file.
  void close();

  /// `id` unless it is negative. what: "create dataset model/b0".
  hid_t check(hid_t id, std::string_view what) const;
  void check_status(herr_t status, std::string_view what) const;

 private:
  void scalar(const std::string& name, hid_t type, const void* value);

  std::string path_;
  std::shared_ptr<MemoryFile> image_;
  File file_;
};

/// The dataset of bytes `name` of a file whose bytes are `image`; `path` stands for it in messages. HDF5 reads nothing
/// from the disk, so what it refuses is damaged. Throws CheckpointError with file and dataset.
[[nodiscard]] std::string read_bytes(std::string_view image, const std::string& path, const std::string& name);

}  // namespace trireme::checkpoint::h5
