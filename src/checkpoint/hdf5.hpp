// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hdf5.h>

#include <mutex>
#include <string>
#include <string_view>
#include <utility>

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

/// The dataset of bytes `name` of a file whose bytes are `image`; `path` identifies it in messages. HDF5 reads nothing
/// from the disk, so any failure means damage. Throws CheckpointError with file and dataset.
[[nodiscard]] std::string read_bytes(std::string_view image, const std::string& path, const std::string& name);

}  // namespace trireme::checkpoint::h5
