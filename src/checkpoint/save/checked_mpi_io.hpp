// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

namespace trireme::checkpoint {

/// While one lives, `failed` is called with the reason on a rank whose write through MPI-IO did not put down all of its
/// bytes, within that write: HDF5, which made it, would wait in its next collective for ranks that wait elsewhere.
/// One at a time in a process.
class CheckedMpiIo {
 public:
  explicit CheckedMpiIo(std::function<void(const std::string& why)> failed);
  CheckedMpiIo(const CheckedMpiIo&) = delete;
  CheckedMpiIo& operator=(const CheckedMpiIo&) = delete;
  ~CheckedMpiIo();
};

}  // namespace trireme::checkpoint
