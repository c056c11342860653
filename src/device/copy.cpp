// SPDX-License-Identifier: Apache-2.0
#include "trireme/device/copy.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "trireme/base/error.hpp"

namespace trireme::device {

void copy(const void* from, void* to, Bytes bytes) {
  if (bytes.value > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes.value));
}

void add_to_host(std::span<const float> device, std::span<float> host) {
  invariant(device.size() == host.size(), "what is added is as long as what it is added to");
  constexpr std::size_t chunk = 1 << 14;
  thread_local std::vector<float> arrived(chunk);
  for (std::size_t begin = 0; begin < device.size(); begin += chunk) {
    const std::size_t count = std::min(chunk, device.size() - begin);
    copy(device.data() + begin, arrived.data(), {static_cast<std::int64_t>(count * sizeof(float))});
    for (std::size_t i = 0; i < count; ++i) host[begin + i] += arrived[i];
  }
}

}  // namespace trireme::device
