// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

namespace trireme::io {

/// Owns a POSIX file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();

  [[nodiscard]] int get() const noexcept { return fd_; }
  /// Closes now; returns 0 or errno, which only a writer has to look at.
  int close() noexcept;

 private:
  int fd_ = -1;
};

}  // namespace trireme::io
