// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/io/truncate.hpp"

#include <unistd.h>

#include <cerrno>

namespace trireme::io {

int truncate(int descriptor, std::int64_t bytes) {
  int result = 0;
  do result = ::ftruncate(descriptor, bytes);
  while (result != 0 && errno == EINTR);
  return result;
}

}  // namespace trireme::io
