// SPDX-License-Identifier: Apache-2.0
#include "trireme/mpi/mpi.hpp"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "trireme/base/error.hpp"

namespace trireme::mpi {

void check(int code, std::string_view what, std::source_location where) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) length = 0;
  throw EnvironmentError(
      fmt::format("MPI could not {}: {} ({}:{}). Run `trireme doctor` under the same launcher to check MPI.", what,
                  length > 0 ? std::string_view(text.data(), static_cast<std::size_t>(length)) : "unknown error",
                  where.file_name(), where.line()));
}

}  // namespace trireme::mpi
