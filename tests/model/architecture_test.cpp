// SPDX-License-Identifier: Apache-2.0
#include "trireme/model/architecture.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "model/message_of.hpp"
#include "trireme/base/error.hpp"
#include "trireme/model/model.hpp"

namespace trireme::model::architecture_test {
namespace {

config::Model small(const Architecture& a) {
  config::Model config{.architecture = std::string(a.name),
                       .vocab_size = 97,
                       .hidden_size = 24,
                       .intermediate_size = 40,
                       .layers = 2,
                       .heads = 4};
  if (a.decoder.learned_positions) config.positions = 8;
  return config;
}

TEST(Architectures, NameEveryTensorOnceAndNoneThatIsNotThere) {
  for (const Architecture& a : architectures()) {
    std::set<std::string_view> tensors;
    for (const NameRow& row : a.names) EXPECT_TRUE(tensors.insert(row.tensor).second) << a.name << ": " << row.tensor;
    config::Model everything = small(a);
    everything.attention_bias = a.expresses(&config::Model::attention_bias);
    everything.mlp_bias = a.expresses(&config::Model::mlp_bias);
    std::set<std::string> names;
    for (const ParameterBlock& block : build(everything).parameter_blocks)
      for (const Parameter& p : block.parameters)
        EXPECT_TRUE(names.insert(p.name).second) << a.name << ": " << p.name << " is there twice";
  }
}

TEST(Architectures, AnUnknownNameListsThoseThereAre) {
  const std::string message = message_of({.architecture = "lama"});
  for (const Architecture& a : architectures()) EXPECT_NE(message.find(a.name), std::string::npos) << message;
}

TEST(Architectures, WithRopeRequireAnEvenHeadDim) {
  for (const Architecture& a : architectures()) {
    config::Model config = small(a);
    config.hidden_size = 4 * 9;
    EXPECT_EQ(message_of(config).find("model.head_dim = 9 is odd; RoPE requires an even head_dim: use 8 or 10") !=
                  std::string::npos,
              !a.decoder.learned_positions)
        << a.name;
  }
}

TEST(Architectures, RefuseWhatTheirClassCannotExpress) {
  for (const Architecture& a : architectures()) {
    config::Model config = small(a);
    config.attention_bias = config.mlp_bias = true;
    config.no_rope_interval = 2;
    config.sliding_window = 3;
    config.layer_types = {config::full_attention, config::sliding_attention};
    const std::string message = message_of(config);
    const auto refused = [&](std::string_view key) {
      return message.find(fmt::format("model.{} has no meaning for model.architecture = \"{}\"", key, a.name)) !=
             std::string::npos;
    };
    EXPECT_EQ(refused("attention_bias"), !a.expresses(&config::Model::attention_bias)) << a.name;
    EXPECT_EQ(refused("mlp_bias"), a.name != "llama" && a.name != "smollm3") << a.name;
    EXPECT_EQ(refused("no_rope_interval"), a.name != "smollm3") << a.name;
    EXPECT_EQ(refused("sliding_window"), a.windows == Windows::none) << a.name;
    EXPECT_EQ(refused("layer_types"), a.windows == Windows::none || a.windows == Windows::all) << a.name;
  }
  config::Model config = small(architecture("qwen3"));
  config.layer_types = {config::sliding_attention};
  EXPECT_NE(message_of(config).find("model.sliding_window is not given"), std::string::npos);
  config.sliding_window = 3;
  EXPECT_EQ(message_of(config), "");
  config.layer_types = {config::full_attention};
  EXPECT_NE(message_of(config).find("model.sliding_window = 3 has no effect"), std::string::npos);
}

TEST(Architectures, WithWindowsCountWhatQueriesSee) {
  config::Model config = small(architecture("ministral"));
  const double plain = flops_per_token(build(config), 64);
  config.sliding_window = 16;
  config.layer_types = {config::full_attention, config::sliding_attention};
  EXPECT_EQ(plain - flops_per_token(build(config), 64), 12.0 * 24 * (64 - 16)) << "one of two layers, 24 wide";
  EXPECT_EQ(flops_per_token(build(config), 16), flops_per_token(build(small(architecture("ministral"))), 16));
  const Model part = build(config, {.rank = 1, .ranks = 2});
  EXPECT_EQ(part.compute_blocks[1].stages[1].window, 0);
  EXPECT_EQ(part.compute_blocks[2].stages[1].window, 16) << "of the branch that tensor parallelism cuts out";
}

TEST(Architectures, WhoseNormsSpanWhatIsSplitRefuseTensorParallelism) {
  for (const Architecture& a : architectures()) {
    const bool refuses = a.decoder.post_norm || a.decoder.qk_norm == QkNorm::width;
    try {
      (void)build(small(a), {.rank = 0, .ranks = 2});
      EXPECT_FALSE(refuses) << a.name;
    } catch (const ConfigError& error) {
      EXPECT_TRUE(refuses) << a.name << ": " << error.what();
    }
  }
}

TEST(Architectures, SumTheGradientsOfNormsOfHeadsWithoutSequenceParallelismToo) {
  const Model part = build(small(architecture("qwen3")), {.rank = 0, .ranks = 2, .sequence_parallel = false});
  for (const Parameter& p : part[ParamBlock{1}].parameters)
    EXPECT_EQ(p.partition->sum_gradient, p.role == Role::q_norm || p.role == Role::k_norm) << p.name;
}

}  // namespace
}  // namespace trireme::model::architecture_test
