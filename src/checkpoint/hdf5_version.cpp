// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/hdf5_version.hpp"

#include <fmt/format.h>

#include "checkpoint/hdf5.hpp"
#include "trireme/base/error.hpp"

namespace trireme::checkpoint {

void check_hdf5() {
  unsigned major = 0, minor = 0, release = 0;
  if (H5get_libversion(&major, &minor, &release) >= 0 && major == H5_VERS_MAJOR && minor == H5_VERS_MINOR &&
      release == H5_VERS_RELEASE)
    return;
  throw EnvironmentError(
      fmt::format("found HDF5 {}.{}.{}, but this program was built with {}.{}.{}. Correct LD_LIBRARY_PATH or the "
                  "loaded modules, or build again.",
                  major, minor, release, H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE));
}

}  // namespace trireme::checkpoint
