// SPDX-License-Identifier: Apache-2.0
#include "cli/start/library_settings.hpp"

#include <cstdlib>
#include <utility>

namespace trireme::cli {

void set_for_libraries() {
  for (const auto& [name, value] : {
           std::pair{"HDF5_DISABLE_VERSION_CHECK", "2"},  // or HDF5 aborts in the call that asks for its version
           {"CUDA_DEVICE_MAX_CONNECTIONS", "32"},         // a hardware queue for each lane: none waits behind another
       })
    (void)::setenv(name, value, /*overwrite=*/0);
  // Blocks of several sizes that come and go, gradient shards among activations, left gaps of an eighth of a 3B's
  // memory on an H200.
  if (std::getenv("PYTORCH_ALLOC_CONF") == nullptr)
    (void)::setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", /*overwrite=*/0);
}

}  // namespace trireme::cli
