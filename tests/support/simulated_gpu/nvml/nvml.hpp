// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

namespace trireme::simulated_gpu {

/// NVML's report of one GPU.
struct NvmlGpu {
  int fabric_error = 3;  ///< what the function about fabrics returns: 3 is NVML_ERROR_NOT_SUPPORTED
  int fabric_status = 0;
  unsigned char fabric_state = 0;  ///< 3 is NVML_GPU_FABRIC_STATE_COMPLETED
  std::string cluster;             ///< 16 bytes
  unsigned clique = 0;
  bool knows_remote_types = true;
  struct Link {
    bool active = true;
    int remote_type = 0;  ///< of NVML: 0 a GPU, 2 a switch
    std::string remote;   ///< a PCI address
  };
  std::map<unsigned, Link> links;
};

/// A libnvidia-ml.so.1 of the tests' own, with the layouts of NVIDIA's NVML reference; nvlink.cpp loads it by name.
struct Nvml {
  int init_error = 0;
  std::map<std::string, NvmlGpu> gpus;  ///< by PCI address
  int open = 0;                         ///< calls of nvmlInit less those of nvmlShutdown
};
extern Nvml nvml;

}  // namespace trireme::simulated_gpu
