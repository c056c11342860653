// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/io/descriptor.hpp"

#include <unistd.h>

#include <cerrno>

namespace trireme::io {

Descriptor::~Descriptor() { close(); }

int Descriptor::close() noexcept {
  if (fd_ < 0) return 0;
  return ::close(std::exchange(fd_, -1)) == 0 ? 0 : errno;
}

}  // namespace trireme::io
