// SPDX-License-Identifier: Apache-2.0
#include "trireme/model/model.hpp"

#include <gtest/gtest.h>

#include "model/message_of.hpp"
#include "trireme/model/no_decay.hpp"

namespace trireme::model {
namespace {

config::Model small() {
  config::Model config;
  config.vocab_size = 100;
  config.hidden_size = 32;
  config.intermediate_size = 88;
  config.layers = 2;
  config.heads = 4;
  return config;
}

void expect_mistakes(const config::Model& config, const std::vector<std::string>& parts) {
  const std::string message = message_of(config);
  for (const std::string& part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' in: " << message;
}

TEST(Build, BuildsLlama) { EXPECT_EQ(build(small()).architecture, "llama"); }

TEST(Build, ListsTheArchitecturesThereAre) {
  config::Model config = small();
  config.architecture = "gpt5";
  expect_mistakes(config, {"gpt5", "llama"});
}

TEST(Build, TakesKvHeadsAndHeadDimFromHeadsAndHiddenSize) {
  const Sizes sizes = build(small()).sizes;
  EXPECT_EQ(sizes.kv_heads, 4);
  EXPECT_EQ(sizes.head_dim, 8);
}

TEST(Build, HonoursAHeadDimThatIsNotHiddenOverHeads) {
  config::Model config = small();
  config.head_dim = 10;
  config.kv_heads = 2;
  const Model model = build(config);
  EXPECT_EQ(model[*model.find("model.layers.1.self_attn.q_proj.weight")].shape, (std::vector<std::int64_t>{40, 32}));
  EXPECT_EQ(model[*model.find("model.layers.1.self_attn.k_proj.weight")].shape, (std::vector<std::int64_t>{20, 32}));
  EXPECT_EQ(model[*model.find("model.layers.1.self_attn.o_proj.weight")].shape, (std::vector<std::int64_t>{32, 40}));
}

TEST(Build, KeepsRopeScalingAndNumbers) {
  config::Model config = small();
  config.rope_theta = 500000;
  config.norm_eps = 1e-6;
  config.rope_scaling = config::RopeScaling{.factor = 32, .original_max_position_embeddings = 4096};
  const Sizes sizes = build(config).sizes;
  EXPECT_EQ(sizes.rope_theta, 500000);
  EXPECT_EQ(sizes.norm_eps, 1e-6);
  EXPECT_EQ(sizes.rope_scaling, config.rope_scaling);
}

TEST(Build, NamesEverySizeThatIsMissingAtOnce) {
  expect_mistakes(config::Model{}, {"vocab_size is not given", "hidden_size is not given",
                                    "intermediate_size is not given", "layers is not given", "heads is not given"});
}

TEST(Build, RefusesSizesThatDoNotFitWithTheNearestThatDo) {
  config::Model config = small();
  config.hidden_size = 34;
  expect_mistakes(config, {"model.heads: 4 heads do not divide hidden_size 34", "model.head_dim, or 2 or 17 heads"});
  config = small();
  config.kv_heads = 3;
  expect_mistakes(config, {"model.kv_heads: 3 kv_heads do not divide 4 heads; set 2 or 4"});
  config = small();
  config.kv_heads = 9;
  expect_mistakes(config, {"9 kv_heads do not divide 4 heads; set 4"});
  config = small();
  config.head_dim = 7;
  expect_mistakes(config, {"head_dim = 7", "6 or 8"});
}

TEST(Build, RefusesNumbersThatCannotBe) {
  config::Model config = small();
  config.layers = -1;
  config.norm_eps = 0;
  config.rope_theta = -5;
  config.init_std = -1;
  config.rope_scaling = config::RopeScaling{.factor = 0, .low_freq_factor = 4, .high_freq_factor = 4};
  expect_mistakes(config, {"layers = -1", "norm_eps = 0", "rope_theta = -5", "init_std = -1", "factor = 0",
                           "high_freq_factor = 4"});
}

TEST(Build, RefusesAModelThatCannotBeCounted) {
  config::Model config = small();
  config.hidden_size = config.vocab_size = config.intermediate_size = 1 << 30;
  expect_mistakes(config, {"too large", "at most"});
  config = small();
  config.vocab_size = std::int64_t{1} << 40;
  expect_mistakes(config, {"vocab_size = 1099511627776", "at most 2147483647"});
}

TEST(Find, FindsEveryParameterWhereItLies) {
  const Model model = build(small());
  std::int64_t elements = 0;
  for (int b = 0; b < model.param_blocks(); ++b) {
    for (int i = 0; i < static_cast<int>(model[ParamBlock{b}].parameters.size()); ++i) {
      const ParamRef here{.block = {b}, .index = i};
      EXPECT_EQ(model.find(model[here].name), here);
      elements += model[here].elements();
    }
  }
  EXPECT_EQ(model.elements(), elements);
  EXPECT_EQ(model.find("lm_head.bias"), std::nullopt);
}

TEST(CheckNoDecay, NamesGlobsOfAUserThatFitNoParameter) {
  const Model model = build({.vocab_size = 97, .hidden_size = 16, .intermediate_size = 24, .layers = 2, .heads = 2});
  const std::vector<std::string> defaults = config::RunConfig{}.optimizer.no_decay;
  EXPECT_NO_THROW(check_no_decay(model, defaults, defaults)) << "no biases here: a default may fit nothing";
  EXPECT_NO_THROW(check_no_decay(model, {"*norm*", "*embed*"}, defaults));
  try {
    check_no_decay(model, {"*nrom*", "*norm*", "*.w"}, defaults);
    FAIL();
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("\"*nrom*\" fits no parameter"), std::string::npos) << text;
    EXPECT_NE(text.find("\"*.w\""), std::string::npos) << text;
    EXPECT_EQ(text.find("\"*norm*\""), std::string::npos) << text;
  }
}

TEST(CheckGroups, NamesGlobsThatFitNoParameterOrOnlyThoseOfEarlierGroups) {
  const Model model = build({.vocab_size = 97, .hidden_size = 16, .intermediate_size = 24, .layers = 2, .heads = 2});
  EXPECT_NO_THROW(check_groups(model, {{.names = {"*norm*", "*embed*"}, .lr = 2}, {.names = {"*"}, .lr = 3}}));
  try {
    check_groups(model,
                 {{.names = {"*nrom*", "*norm*"}, .lr = 2}, {.names = {"*input_layernorm*", "*head*"}, .lr = 3}});
    FAIL();
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("\"*nrom*\" fits no parameter"), std::string::npos) << text;
    EXPECT_NE(text.find("\"*input_layernorm*\" fits no parameter, or only"), std::string::npos) << text;
    EXPECT_EQ(text.find("\"*norm*\""), std::string::npos) << text;
    EXPECT_EQ(text.find("\"*head*\""), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace trireme::model

// Fault, plans: a glob of `optimizer.groups` without parameters, or with those of earlier groups alone -> refused
// Fault, plans: unmatched `optimizer.no_decay`, `optimizer.eps` below fp32 -> refused
