// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/decay.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace trireme::optim {
namespace {

const std::vector<std::string> globs{"*norm*", "*.bias"};

/// norm at [0, 100), q at [128, 256), up at [256, 306), bias at [320, 330); 330 elements padded to shards * 64.
model::ParameterBlock block() {
  const auto parameter = [](const char* name, std::vector<std::int64_t> shape) {
    return model::Parameter{.name = name, .shape = std::move(shape)};
  };
  return {.name = "b0",
          .parameters = {parameter("model.layers.0.input_layernorm.weight", {100}),
                         parameter("model.layers.0.q_proj.weight", {2, 64}),
                         parameter("model.layers.0.up_proj.weight", {5, 10}),
                         parameter("model.layers.0.o_proj.bias", {10})}};
}

std::vector<DecayRange> ranges(int shards, int rank) { return decay_ranges(block(), {block(), shards}, rank, globs); }

TEST(Decay, FollowsTheGlobs) {
  EXPECT_TRUE(decays("model.layers.3.mlp.up_proj.weight", globs));
  EXPECT_TRUE(decays("model.embed_tokens.weight", globs));
  EXPECT_FALSE(decays("model.layers.3.input_layernorm.weight", globs));
  EXPECT_FALSE(decays("model.norm.weight", globs));
  EXPECT_FALSE(decays("model.layers.3.self_attn.q_proj.bias", globs));
  EXPECT_TRUE(decays("model.norm.weight", {}));
}

TEST(DecayRanges, CoverParametersAndLeaveGapsOut) {
  const std::vector<DecayRange> expected{{{0, 100}, false}, {{128, 306}, true}, {{320, 330}, false}};
  EXPECT_EQ(ranges(1, 0), expected);
}

TEST(DecayRanges, AreThoseOfTheShard) {
  const std::vector<DecayRange> first{{{0, 100}, false}, {{128, 192}, true}};
  const std::vector<DecayRange> second{{{0, 114}, true}, {{128, 138}, false}};
  EXPECT_EQ(ranges(2, 0), first);
  EXPECT_EQ(ranges(2, 1), second);
}

TEST(DecayRanges, OfPaddingAreEmpty) { EXPECT_TRUE(ranges(7, 6).empty()); }

}  // namespace
}  // namespace trireme::optim
