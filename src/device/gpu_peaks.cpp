// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "trireme/device/gpus.hpp"

namespace trireme::device {

std::optional<double> peak_bf16_flops(std::string_view name) {
  // Parts of the names that drivers give, the more special before the more general. NVIDIA's data sheets, without
  // sparsity.
  constexpr std::pair<std::string_view, double> peaks[] = {
      {"H200 NVL", 835e12}, {"H100 NVL", 835e12}, {"H100 PCIe", 756e12}, {"GH200", 989e12},
      {"H200", 989e12},     {"H100", 989e12},     {"A100", 312e12},
  };
  const auto* const found = std::find_if(std::begin(peaks), std::end(peaks),
                                         [&](const auto& peak) { return name.find(peak.first) != name.npos; });
  return found == std::end(peaks) ? std::nullopt : std::optional(found->second);
}

}  // namespace trireme::device
