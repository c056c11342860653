// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "huggingface/config_text.hpp"
#include "huggingface/directories.hpp"
#include "trireme/base/error.hpp"
#include "trireme/huggingface/complete_model.hpp"

namespace trireme::huggingface {
namespace {

config::Model weights_model() { return parse_hf_config(config_text(true), "config.json").model; }

TEST(MergeModelConfig, FillsInEverySizeThatTheRunFileLeavesOut) {
  config::Model run_file;
  run_file.from = "directory";
  run_file.init_std = 0.5;
  const config::Model merged = merge_model_config(run_file, weights_model());
  EXPECT_EQ(model::build(merged).sizes, model::build(weights_model()).sizes);
  EXPECT_EQ(merged.from, "directory");
  EXPECT_EQ(merged.init_std, 0.5);
}

TEST(MergeModelConfig, AcceptsSizesThatAgree) {
  config::Model run_file = weights_model();
  run_file.rope_scaling.reset();
  EXPECT_EQ(model::build(merge_model_config(run_file, weights_model())).sizes, model::build(weights_model()).sizes);
}

TEST(MergeModelConfig, TakesRopeScalingFromTheWeights) {
  config::Model hf = weights_model();
  hf.rope_scaling = config::RopeScaling{};
  EXPECT_EQ(merge_model_config({}, hf).rope_scaling, hf.rope_scaling);
}

TEST(MergeModelConfig, TakesItsOwnExportBackWhereNoLayerFollowsAKey) {
  const auto merges = [](const char* family, auto set) {
    config::Model run_file{.architecture = family, .vocab_size = 11, .hidden_size = 8, .intermediate_size = 12};
    run_file.layers = 2;
    run_file.heads = 4;
    run_file.kv_heads = 4;
    run_file.head_dim = 2;
    set(run_file);
    const std::string text = hf_config_text(model::build(run_file), {});
    const config::Model merged = merge_model_config(run_file, parse_hf_config(text, "config.json").model);
    EXPECT_EQ(hf_config_text(model::build(merged), {}), text) << family;
  };
  merges("smollm3", [](config::Model& m) { m.no_rope_interval = 5; });
  merges("smollm3", [](config::Model& m) { m.no_rope_interval = 2; });
  for (const char* family : {"ministral", "qwen3", "gemma2", "gemma3", "olmo3"})
    for (const std::int64_t layers : {1, 2, 3})
      merges(family, [&](config::Model& m) {
        m.layers = layers;
        m.sliding_window = 3;
        m.layer_types = {config::full_attention, config::sliding_attention};
      });
}

TEST(MergeModelConfig, NamesEveryDifferenceWithBothValues) {
  config::Model run_file = weights_model();
  run_file.vocab_size = 12;
  run_file.layers = 3;
  run_file.head_dim = 4;
  run_file.norm_eps = 0.5;
  run_file.rope_theta = 7;
  run_file.rope_scaling = config::RopeScaling{};
  expect_parts(message_of<ConfigError>([&] { (void)merge_model_config(run_file, weights_model()); }),
               {"model.vocab_size = 12, but the weights of model.from have 11", "model.layers = 3",
                "model.head_dim = 4", "have 6", "model.norm_eps = 0.5", "have 1e-06", "model.rope_theta = 7",
                "model.rope_scaling = { rope_type = \"llama3\", factor = 8", "have none"});
}

TEST(MergeModelConfig, RefusesToTieWhatTheWeightsDoNot) {
  config::Model run_file;
  run_file.tie_embeddings = true;
  config::Model hf = weights_model();
  hf.tie_embeddings = false;
  expect_parts(message_of<ConfigError>([&] { (void)merge_model_config(run_file, hf); }),
               {"tie_embeddings = true", "have false"});
}

TEST(MergeModelConfig, LossesOfRoutersAreRefusedOnceTheWeightsAreKnownToBeDense) {
  config::RunConfig config;
  config.model.from = "directory";
  config.loss.router_z_loss = 1e-3;
  config.model = merge_model_config(config.model, weights_model());
  expect_parts(message_of<ConfigError>([&] { (void)with_derived_sizes(config); }),
               {"loss.router_z_loss = 0.001 has no effect on a model without experts"});
  config.loss.router_z_loss = 0;
  EXPECT_EQ(with_derived_sizes(config).model.kv_heads, model::build(weights_model()).sizes.kv_heads);
}

}  // namespace
}  // namespace trireme::huggingface
