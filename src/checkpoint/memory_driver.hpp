// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hdf5.h>

#include <memory>

#include "checkpoint/memory_file.hpp"

namespace trireme::checkpoint::h5 {

/// Lets files that are opened with the file access properties `access` be `file`, whatever their name, by a file driver
/// of ours. False when HDF5 refuses. Call with the lock of HDF5 held.
[[nodiscard]] bool keep_in_memory(hid_t access, const std::shared_ptr<MemoryFile>& file);

}  // namespace trireme::checkpoint::h5
