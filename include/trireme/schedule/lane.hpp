// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace trireme::schedule {

/// Execution lane of an op: ops of one lane run one after another, in the schedule's order, on every rank.
enum class Lane : std::uint8_t {
  compute,
  gather,
  reduce,
  device_to_host,
  host_to_device,
  host,
  optimizer,
  tensor,
  context,
  expert,
  send,
  receive
};
inline constexpr int lanes = 12;
inline constexpr std::array all_lanes{Lane::compute,        Lane::gather, Lane::reduce,    Lane::device_to_host,
                                      Lane::host_to_device, Lane::host,   Lane::optimizer, Lane::tensor,
                                      Lane::context,        Lane::expert, Lane::send,      Lane::receive};
[[nodiscard]] std::string_view to_text(Lane lane);

}  // namespace trireme::schedule
