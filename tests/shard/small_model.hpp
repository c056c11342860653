// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/run_config.hpp"

namespace trireme::shard {

/// One layer, of which no size is a multiple of the alignment.
inline config::Model small_model() {
  return {.vocab_size = 101,
          .hidden_size = 36,
          .intermediate_size = 52,
          .layers = 1,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 10};
}

}  // namespace trireme::shard
