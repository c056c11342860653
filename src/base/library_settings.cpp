// SPDX-License-Identifier: Apache-2.0
#include "base/library_settings.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

namespace trireme {

namespace {

/// Whether a launcher has started several processes.
bool has_several_ranks() {
  constexpr std::array<const char*, 3> sizes{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
  return std::ranges::any_of(sizes, [](const char* name) {
    const char* const size = std::getenv(name);
    return size != nullptr && std::atoi(size) > 1;
  });
}

}  // namespace

void set_for_libraries() {
  for (const auto& [name, value] : {
           std::pair{"HDF5_DISABLE_VERSION_CHECK", "2"},  // or HDF5 aborts in the call that returns its version
           {"CUDA_DEVICE_MAX_CONNECTIONS", "32"},         // a hardware queue for each lane: none waits behind another
       })
    (void)::setenv(name, value, /*overwrite=*/0);
  // The first launch of a kernel loads it, which may wait for all work of the GPU: also for a collective that waits for
  // another rank, whose own first launch waits likewise. So all kernels are loaded at the start.
  if (has_several_ranks()) (void)::setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
  // Temporary blocks of several sizes, such as gradient shards among activations, fragmented an eighth of a 3B's memory
  // on an H200.
  if (std::getenv("PYTORCH_ALLOC_CONF") == nullptr)
    (void)::setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", /*overwrite=*/0);
}

}  // namespace trireme
