// SPDX-License-Identifier: Apache-2.0
#include "trireme/model/kv_cache.hpp"

#include <gtest/gtest.h>

namespace trireme::model::kv_cache_test {
namespace {

config::Model four_layers() {
  return {.architecture = "ministral",
          .vocab_size = 97,
          .hidden_size = 24,
          .intermediate_size = 40,
          .layers = 4,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 6,
          .sliding_window = 5,
          .layer_types = {"sliding_attention", "full_attention"}};
}

TEST(KvCache, HoldsKeysAndValuesOfTheTokensThatTheNextOneSees) {
  // Two layers see 5 tokens, two all 100: a key and a value of 2 heads of 6 each.
  EXPECT_EQ(kv_cache_bytes(build(four_layers()), 3, 100, DType::fp32), Bytes{3 * (2 * 5 + 2 * 100) * 2 * 2 * 6 * 4});
  EXPECT_EQ(kv_cache_bytes(build(four_layers()), 1, 4, DType::bf16), Bytes{4 * 4 * 2 * 2 * 6 * 2});
}

TEST(KvCache, IsDividedOverTensorRanksAsKeyAndValueHeadsAre) {
  const Bytes whole = kv_cache_bytes(build(four_layers()), 1, 100, DType::fp32);
  for (const bool sequence_parallel : {true, false}) {
    const auto held = [&](int ranks) {
      const Model part = build(four_layers(), {.rank = 0, .ranks = ranks, .sequence_parallel = sequence_parallel});
      return kv_cache_bytes(part, 1, 100, DType::fp32);
    };
    EXPECT_EQ(held(2).value * 2, whole.value);
    EXPECT_EQ(held(4).value * 2, whole.value) << "two ranks hold the same head";
  }
}

}  // namespace
}  // namespace trireme::model::kv_cache_test
