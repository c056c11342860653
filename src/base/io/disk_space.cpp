// SPDX-License-Identifier: Apache-2.0
#include "base/io/disk_space.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include "trireme/base/error.hpp"

namespace trireme::io {

void require_file_size(const std::string& path, std::int64_t bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      static_cast<std::uint64_t>(bytes) > limit.rlim_cur)
    throw WriteError(
        fmt::format("{}: needs up to {} bytes, but a file of this process may have {} at most (ulimit -f); raise the "
                    "limit",
                    path, bytes, limit.rlim_cur));
}

}  // namespace trireme::io
