// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/model/model.hpp"

namespace trireme::model {
namespace {

config::Model gpt2(std::int64_t hidden = 24, std::int64_t heads = 6) {
  return {.architecture = "gpt2",
          .vocab_size = 97,
          .hidden_size = hidden,
          .intermediate_size = 4 * hidden,
          .layers = 2,
          .heads = heads,
          .positions = 32,
          .tie_embeddings = true};
}

TEST(Gpt2, HasHuggingFacesParametersInOrder) {
  const Model model = build(gpt2());
  std::string text;
  for (const Parameter& p : model[ParamBlock{2}].parameters)
    text += fmt::format("{} {}{}\n", p.name, p.shape, p.transposed_in_files ? " transposed" : "");
  EXPECT_EQ(text, R"(transformer.h.0.ln_1.weight [24]
transformer.h.0.ln_1.bias [24]
transformer.h.0.attn.c_attn.weight [72, 24] transposed
transformer.h.0.attn.c_attn.bias [72]
transformer.h.0.attn.c_proj.weight [24, 24] transposed
transformer.h.0.attn.c_proj.bias [24]
transformer.h.0.ln_2.weight [24]
transformer.h.0.ln_2.bias [24]
transformer.h.0.mlp.c_fc.weight [96, 24] transposed
transformer.h.0.mlp.c_fc.bias [96]
transformer.h.0.mlp.c_proj.weight [24, 96] transposed
transformer.h.0.mlp.c_proj.bias [24]
)");
  EXPECT_EQ(model[*model.find("transformer.wpe.weight")].shape, (std::vector<std::int64_t>{32, 24}));
}

TEST(Gpt2, HasThePublishedNumberOfParameters) {
  config::Model config = gpt2(768, 12);
  config.vocab_size = 50257;
  config.layers = 12;
  config.positions = 1024;
  EXPECT_EQ(build(config).elements(), 124439808);  // gpt2, tied
}

TEST(Gpt2, LooksPositionsUpAndMultipliesByTheRest) {
  const Model model = build(gpt2());
  EXPECT_EQ(product_elements(model, Block{0}), 0);  // token and position embeddings
  const std::int64_t hidden = model.sizes.hidden, width = model.sizes.heads * model.sizes.head_dim;
  EXPECT_EQ(product_elements(model, Block{1}), 4 * width * hidden + 2 * model.sizes.intermediate * hidden);
}

TEST(Gpt2, RefusesWhatItCannotHonour) {
  config::Model config = gpt2();
  config.kv_heads = 3;
  config.rope_theta = 500;
  try {
    (void)build(config);
    FAIL() << "nothing was refused";
  } catch (const ConfigError& error) {
    for (const char* part : {"model.kv_heads = 3", "model.rope_theta has no meaning"})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
  config = gpt2();
  config.positions = 0;
  EXPECT_THROW((void)build(config), ConfigError);
  config.architecture = "llama";
  config.positions = 32;
  EXPECT_THROW((void)build(config), ConfigError);
}

}  // namespace
}  // namespace trireme::model
