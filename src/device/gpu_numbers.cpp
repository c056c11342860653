// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "trireme/device/gpus.hpp"

namespace trireme::device {

std::optional<double> peak_bf16_flops(std::string_view name) {
  // Parts of the drivers' names, specific ones before general
  // ones. From NVIDIA's data sheets, without sparsity.
  constexpr std::pair<std::string_view, double> peaks[] = {
      {"H200 NVL", 835e12}, {"H100 NVL", 835e12}, {"H100 PCIe", 756e12}, {"GH200", 989e12},
      {"H200", 989e12},     {"H100", 989e12},     {"A100", 312e12},
  };
  const auto* const found = std::find_if(std::begin(peaks), std::end(peaks),
                                         [&](const auto& peak) { return name.find(peak.first) != name.npos; });
  return found == std::end(peaks) ? std::nullopt : std::optional(found->second);
}

double fraction_of(Bytes most, Bytes all) {
  if (most >= all) return 1;
  const auto whole = static_cast<double>(all.value);
  const double part = static_cast<double>(most.value) / whole;
  return static_cast<std::int64_t>(part * whole) >= most.value ? part : std::nextafter(part, 1.0);
}

}  // namespace trireme::device
