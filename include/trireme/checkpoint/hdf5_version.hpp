// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace trireme::checkpoint {

/// Throws EnvironmentError unless the HDF5 library found at run time has the version of the build: HDF5 itself would
/// end the process in the middle of a save. HDF5_DISABLE_VERSION_CHECK has to be 2 (the program sets it when it
/// starts), or HDF5 ends the process here.
void check_hdf5();

}  // namespace trireme::checkpoint
