// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace trireme::checkpoint {

/// Throws EnvironmentError unless the HDF5 that was found at run time is the one that the program was built with:
/// HDF5 itself would end the process in the middle of a save.
void check_hdf5();

}  // namespace trireme::checkpoint
