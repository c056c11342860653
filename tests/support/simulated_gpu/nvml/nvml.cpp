// SPDX-License-Identifier: Apache-2.0
#include "nvml.hpp"

#include <algorithm>
#include <cstring>

namespace trireme::simulated_gpu {

Nvml nvml;

namespace {

struct PciInfo {  // nvmlPciInfo_t
  char bus_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(PciInfo) == 68);
struct FabricInfo {  // nvmlGpuFabricInfo_t, whose enumerations are ints
  unsigned char cluster[16];
  int status;
  unsigned clique;
  unsigned char state;
};
static_assert(sizeof(FabricInfo) == 28);

constexpr int success = 0, invalid_argument = 2, not_supported = 3, not_found = 6;
using Gpu = std::map<std::string, NvmlGpu>::value_type;

void put_address(const std::string& address, PciInfo* info) {
  std::memset(info, 0x5a, sizeof *info);
  std::strncpy(info->bus_id, address.c_str(), sizeof info->bus_id);
}

const NvmlGpu::Link* link_of(const Gpu* gpu, unsigned link) {
  const auto found = gpu->second.links.find(link);
  return found == gpu->second.links.end() ? nullptr : &found->second;
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  if (nvml.init_error == success) ++nvml.open;
  return nvml.init_error;
}

int nvmlShutdown() {
  --nvml.open;
  return success;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char* address, Gpu** gpu) {
  const auto found = nvml.gpus.find(address);
  if (found == nvml.gpus.end()) return not_found;
  *gpu = &*found;
  return success;
}

int nvmlDeviceGetGpuFabricInfo(const Gpu* gpu, FabricInfo* info) {
  const NvmlGpu& of = gpu->second;
  if (of.fabric_error != success) return of.fabric_error;
  std::memset(info, 0, sizeof *info);
  std::copy_n(of.cluster.begin(), std::min<std::size_t>(of.cluster.size(), 16), info->cluster);
  info->status = of.fabric_status;
  info->clique = of.clique;
  info->state = of.fabric_state;
  return success;
}

int nvmlDeviceGetNvLinkState(const Gpu* gpu, unsigned link, int* active) {
  const NvmlGpu::Link* found = link_of(gpu, link);
  if (found == nullptr) return invalid_argument;
  *active = found->active ? 1 : 0;
  return success;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(const Gpu* gpu, unsigned link, int* type) {
  const NvmlGpu::Link* found = link_of(gpu, link);
  if (!gpu->second.knows_remote_types) return not_supported;
  if (found == nullptr || !found->active) return invalid_argument;
  *type = found->remote_type;
  return success;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(const Gpu* gpu, unsigned link, PciInfo* info) {
  const NvmlGpu::Link* found = link_of(gpu, link);
  if (found == nullptr || !found->active || found->remote.empty()) return not_supported;
  put_address(found->remote, info);
  return success;
}

int nvmlDeviceGetPciInfo_v3(const Gpu* gpu, PciInfo* info) {
  put_address(gpu->first, info);
  return success;
}

}  // extern "C"

}  // namespace trireme::simulated_gpu
