// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace trireme::model {

/// The collectives between two stages of a block; `schedule::ExchangeRow` describes each.
enum class Exchange : std::uint8_t {
  gather_sequence,
  scatter_sequence,
  all_reduce_activation,
  all_reduce_statistics,
  gather_vocabulary,
  gather_keys,
  scatter_keys,
  to_heads,
  to_tokens,
  sum_loads,
  exchange_counts,
  dispatch,
  combine
};
inline constexpr int exchanges = 13;

}  // namespace trireme::model
