// SPDX-License-Identifier: Apache-2.0
//
// NVML is a part of the driver and loaded by name: this program also starts without a driver. Its functions and numbers
// are those of NVIDIA's NVML reference (nvmlDeviceGetGpuFabricInfo, nvmlDeviceGetNvLinkState, ...).
#include "device/cuda/nvlink.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>

namespace trireme::device::cuda {
namespace {

using Device = void*;
constexpr int success = 0;
constexpr unsigned most_links = 18;  // of an H100 or H200; more have no later GPU of a single board

struct PciInfo {  // nvmlPciInfo_t
  std::array<char, 16> bus_legacy;
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  std::array<char, 32> bus_id;
};
struct FabricInfo {  // nvmlGpuFabricInfo_t
  std::array<unsigned char, 16> cluster;
  int status;
  unsigned clique;
  unsigned char state;
};
constexpr unsigned char fabric_completed = 3;
constexpr int remote_is_switch = 2;  // NVML_NVLINK_DEVICE_TYPE_SWITCH

class Nvml {
 public:
  Nvml() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (const auto init = function<int (*)()>("nvmlInit_v2")) ready_ = init() == success;
  }
  ~Nvml() {
    if (ready_)
      if (const auto shutdown = function<int (*)()>("nvmlShutdown")) (void)shutdown();
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  [[nodiscard]] bool ready() const { return ready_; }
  /// function(arguments...) succeeded; false if this NVML has no such function.
  template <class... Arguments>
  bool call(const char* name, Arguments... arguments) const {
    const auto found = function<int (*)(Arguments...)>(name);
    return found != nullptr && found(arguments...) == success;
  }

 private:
  template <class Function>
  [[nodiscard]] Function function(const char* name) const {
    return library_ == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library_, name));
  }
  void* library_;  ///< stays loaded: other threads may use it
  bool ready_ = false;
};

/// Name of the NVLink fabric that nodes share.
std::string fabric_of(const Nvml& nvml, Device gpu) {
  FabricInfo info{};
  if (!nvml.call("nvmlDeviceGetGpuFabricInfo", gpu, &info) || info.state != fabric_completed || info.status != success)
    return "";
  if (std::ranges::all_of(info.cluster, [](unsigned char byte) { return byte == 0; })) return "";
  std::string text = "fabric ";
  for (const unsigned char byte : info.cluster) text += fmt::format("{:02x}", byte);
  return fmt::format("{}/{}", text, info.clique);
}

}  // namespace

std::string nvlink_domain(const std::string& bus) {
  const Nvml nvml;
  Device gpu = nullptr;
  if (!nvml.ready() || !nvml.call("nvmlDeviceGetHandleByPciBusId_v2", bus.c_str(), &gpu)) return "";
  if (const std::string fabric = fabric_of(nvml, gpu); !fabric.empty()) return fabric;
  // All GPUs at a node's switches reach each other. Without a switch the least address of those that are joined names
  // them.
  std::string least;
  for (unsigned link = 0; link < most_links; ++link) {
    int active = 0, remote = 0;
    PciInfo other{}, own{};
    if (!nvml.call("nvmlDeviceGetNvLinkState", gpu, link, &active) || active != 1) continue;
    if (nvml.call("nvmlDeviceGetNvLinkRemoteDeviceType", gpu, link, &remote) && remote == remote_is_switch)
      return "switch";
    if (!nvml.call("nvmlDeviceGetNvLinkRemotePciInfo_v2", gpu, link, &other) ||
        !nvml.call("nvmlDeviceGetPciInfo_v3", gpu, &own))
      continue;
    for (const PciInfo& each : {own, other})
      if (const std::string text(each.bus_id.data()); least.empty() || text < least) least = text;
  }
  return least;
}

}  // namespace trireme::device::cuda
