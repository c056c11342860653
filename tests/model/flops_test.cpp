// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "trireme/model/model.hpp"

namespace trireme::model::flops_test {
namespace {

config::Model small(bool tied) {
  config::Model config;
  config.vocab_size = 100;
  config.hidden_size = 8;
  config.intermediate_size = 20;
  config.layers = 3;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_dim = 6;
  config.tie_embeddings = tied;
  return config;
}

TEST(Flops, CountSixPerParameterInAProductAndAttentionInFull) {
  const double layer = 8 * (12 + 6 + 6) + 12 * 8 + 3 * 20 * 8;
  const double products = 3 * layer + 100 * 8;
  EXPECT_DOUBLE_EQ(flops_per_token(build(small(false)), 64), 6 * products + 12 * 3 * 2 * 6 * 64);
}

TEST(Flops, AreTheSameWithTiedEmbeddings) {
  EXPECT_DOUBLE_EQ(flops_per_token(build(small(true)), 128), flops_per_token(build(small(false)), 128));
}

TEST(Flops, CountTheExpertsOfATokenOnly) {
  config::Model config = small(false);
  config.architecture = "qwen3_moe";
  config.experts = 7;
  config.experts_per_token = 2;
  config.expert_size = 5;
  config.dense_layers = 1;
  const double attention = 8 * (12 + 6 + 6) + 12 * 8, experts = 7 * 8 + 2 * 3 * 5 * 8;
  const double products = 3 * attention + 3 * 20 * 8 + 2 * experts + 100 * 8;
  EXPECT_DOUBLE_EQ(flops_per_token(build(config), 64), 6 * products + 12 * 3 * 2 * 6 * 64);
}

TEST(Flops, NameTheirRule) { EXPECT_NE(flop_rule().find("PaLM"), std::string_view::npos); }

}  // namespace
}  // namespace trireme::model::flops_test
