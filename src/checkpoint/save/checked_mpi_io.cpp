// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/save/checked_mpi_io.hpp"

#include <fmt/format.h>
#include <mpi.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "trireme/base/error.hpp"

namespace trireme::checkpoint {
namespace {

std::function<void(const std::string& why)>& handler() {
  static std::function<void(const std::string& why)> only;
  return only;
}

std::string reason(int code, int error, MPI_Count wrote, MPI_Count bytes) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (code != MPI_SUCCESS) MPI_Error_string(code, text.data(), &length);
  return fmt::format("MPI-IO wrote {} of {} bytes{}{}{}{}", wrote, bytes, length > 0 ? ": " : "", text.data(),
                     error != 0 ? ": " : "", error != 0 ? std::generic_category().message(error) : "");
}

/// Open MPI's OMPIO takes a write that the system refused for done, of no bytes (seen with 4.1 and a full disk): a
/// count is asked for, too.
template <class Write>
int checked(int count, MPI_Datatype type, MPI_Status* status, Write&& write) {
  if (!handler()) return write(status);
  MPI_Status own;
  MPI_Status* const result = status == MPI_STATUS_IGNORE ? &own : status;
  errno = 0;
  const int code = write(result);
  const int error = errno;
  MPI_Count size = 0, wrote = 0;
  MPI_Type_size_x(type, &size);
  size *= count;
  if (code == MPI_SUCCESS) MPI_Get_elements_x(result, MPI_BYTE, &wrote);
  if (code != MPI_SUCCESS || wrote < size) handler()(reason(code, error, wrote, size));
  return code;
}

}  // namespace

CheckedMpiIo::CheckedMpiIo(std::function<void(const std::string& why)> failed) {
  invariant(!handler(), "writes are checked for one at a time");
  handler() = std::move(failed);
}

CheckedMpiIo::~CheckedMpiIo() { handler() = nullptr; }

}  // namespace trireme::checkpoint

// MPI's profiling interface: whoever writes through MPI-IO in this program, as HDF5 does, comes here.
extern "C" {

int MPI_File_write_at(MPI_File file, MPI_Offset offset, const void* bytes, int count, MPI_Datatype type,
                      MPI_Status* status) {
  return trireme::checkpoint::checked(
      count, type, status, [&](MPI_Status* s) { return PMPI_File_write_at(file, offset, bytes, count, type, s); });
}

int MPI_File_write_at_all(MPI_File file, MPI_Offset offset, const void* bytes, int count, MPI_Datatype type,
                          MPI_Status* status) {
  return trireme::checkpoint::checked(
      count, type, status, [&](MPI_Status* s) { return PMPI_File_write_at_all(file, offset, bytes, count, type, s); });
}

}  // extern "C"
