// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/model_metadata.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"

namespace trireme::checkpoint {
namespace {

config::Model odd_model() {
  return {
      .vocab_size = 101,
      .hidden_size = 36,
      .intermediate_size = 50,
      .layers = 2,
      .heads = 6,
      .kv_heads = 2,
      .head_dim = 10,
      .norm_eps = 1.1e-6,
      .rope_theta = 123456.789,
      .rope_scaling =
          config::RopeScaling{
              .factor = 3.3, .low_freq_factor = 1.25, .high_freq_factor = 4.75, .original_max_position_embeddings = 77},
      .tie_embeddings = true};
}

TEST(Metadata, AModelComesBackAsItWas) {
  for (config::Model model : {odd_model(), config::Model{.vocab_size = 9,
                                           .hidden_size = 8,
                                           .intermediate_size = 7,
                                           .layers = 1,
                                           .heads = 2,
                                           .kv_heads = 2,
                                           .head_dim = 4}}) {
    const Metadata metadata = model_metadata(model::build(model));
    const config::Model back = model_of("index.h5", metadata);
    EXPECT_EQ(model_metadata(model::build(back)), metadata);
    EXPECT_EQ(back.rope_scaling, model.rope_scaling);
    EXPECT_EQ(back.norm_eps, model.norm_eps);
    EXPECT_EQ(back.rope_theta, model.rope_theta);
    EXPECT_EQ(back.tie_embeddings, model.tie_embeddings);
  }
}

/// As 0.1.0 wrote it.
TEST(Metadata, OfOlderCheckpointsAreRead) {
  const config::Model model = model_of("index.h5", {{"model.architecture", "llama"},
                                                    {"model.vocab_size", "101"},
                                                    {"model.hidden_size", "36"},
                                                    {"model.intermediate_size", "50"},
                                                    {"model.layers", "2"},
                                                    {"model.heads", "6"},
                                                    {"model.kv_heads", "2"},
                                                    {"model.head_dim", "10"},
                                                    {"model.norm_eps", "1.1e-06"},
                                                    {"model.rope_theta", "10000"},
                                                    {"model.tie_embeddings", "true"},
                                                    {"model.rope_scaling",
                                                     "factor 3.3, low_freq_factor 1.25, high_freq_factor 4.75, "
                                                     "original_max_position_embeddings 77"}});
  EXPECT_EQ(model.rope_scaling, odd_model().rope_scaling);
  EXPECT_EQ(model.norm_eps, 1.1e-6);
  EXPECT_EQ(model.rope_theta, 10000);
  EXPECT_TRUE(model.tie_embeddings);
}

TEST(Metadata, ThatAreMissingOrNoNumbersAreRefusedByName) {
  const Metadata sound = model_metadata(model::build(odd_model()));
  for (std::size_t i = 1; i < sound.size(); ++i) {
    Metadata broken = sound;
    broken[i].second = "12 apples";
    try {
      (void)model_of("index.h5", broken);
      ADD_FAILURE() << sound[i].first;
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(sound[i].first));
    }
  }
  EXPECT_THROW((void)model_of("index.h5", Metadata{}), CheckpointError);
}

TEST(Metadata, OfGenerationComeBackAndLeaveTheRestAlone) {
  const huggingface::HfWriteOptions told{.max_position_embeddings = 77,
                                         .bos_token_id = 3,
                                         .eos_token_ids = {4, 128'009},
                                         .kept = R"({"use_cache":false})",
                                         .kept_generation = R"({"temperature":0.6})"};
  huggingface::HfWriteOptions read;
  read_generation("index.h5", generation_metadata(told), read);
  EXPECT_EQ(read.max_position_embeddings, 77);
  EXPECT_EQ(read.bos_token_id, 3);
  EXPECT_EQ(read.eos_token_ids, told.eos_token_ids);
  EXPECT_EQ(read.kept, told.kept);
  EXPECT_EQ(read.kept_generation, told.kept_generation);
  read_generation("index.h5", {}, read);
  EXPECT_EQ(read.max_position_embeddings, 77);
  EXPECT_THROW(read_generation("index.h5", {{"eos_token_ids", "1,x"}}, read), CheckpointError);
}

}  // namespace
}  // namespace trireme::checkpoint
