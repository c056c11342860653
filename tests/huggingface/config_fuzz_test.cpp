// SPDX-License-Identifier: Apache-2.0
// Damaged and inconsistent config.json of every family: refused with the key, or read as written; never a crash.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "huggingface/config_text.hpp"
#include "huggingface/directories.hpp"
#include "huggingface/sound_config.hpp"
#include "trireme/base/error.hpp"
#include "trireme/model/architecture.hpp"

namespace trireme::huggingface::config_fuzz_test {
namespace {

using nlohmann::json;

/// The same as the text part of a multimodal model that may have it; untouched where none may.
json as_text_part(json config, std::size_t which) {
  config["final_logit_softcapping"] = nullptr;  // absent it is 30 in Gemma 2
  config.erase("logits_scaling");
  std::vector<const model::Multimodal*> fitting;
  for (const model::Multimodal& m : model::multimodals())
    if (m.any_text || model::text_type(m.text_type)->family_type == config["model_type"]) fitting.push_back(&m);
  const model::Multimodal& m = *fitting[which % fitting.size()];
  if (!m.any_text) config["model_type"] = m.text_type;
  if (m.text_type == "qwen3_vl_text")
    for (const char* key : {"use_sliding_window", "sliding_window", "max_window_layers", "layer_types"})
      config.erase(key);
  config.erase("architectures");
  return {{"model_type", m.model_type},
          {"tie_word_embeddings", config["tie_word_embeddings"]},
          {"vision_config", {{"hidden_size", 4}}},
          {"text_config", config}};
}

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  /// Takes a key out, gives it another value, or another key's; also inside the table of RoPE.
  void mutate(json& config) {
    json& table = one_of(3) == 0 ? inner(inner(config)) : config;
    if (table.empty()) return;
    const std::string key = key_of(table);
    switch (one_of(4)) {
      case 0: table.erase(key); break;
      case 1: table[key] = table[key_of(table)]; break;
      default: table[key] = odd_value();
    }
  }
  std::size_t one_of(std::size_t count) { return random_() % count; }

 private:
  /// A table of RoPE, or of one type of layer in it, if there is one.
  json& inner(json& table) {
    std::vector<json*> tables;
    for (auto& [key, value] : table.items())
      if (value.is_object()) tables.push_back(&value);
    return tables.empty() ? table : *tables[one_of(tables.size())];
  }
  std::string key_of(const json& table) {
    return std::next(table.begin(), static_cast<long>(one_of(table.size()))).key();
  }
  json odd_value() {
    static const json values = json::parse(
        R"([null, true, false, 0, 1, -1, 3, 0.5, -0.0, 1e308, 5e-324, 2147483648, 9223372036854775807, 18446744073709551615,
            "", "x", "silu", "yarn", "default", "\u0000", [], {}, [null], [1, 0, 1, 0], ["full_attention"],
            ["sliding_attention", "full_attention", "full_attention", "sliding_attention"], {"type": "linear", "factor": 2},
            {"full_attention": {"rope_type": "default"}}])");
    return values[one_of(values.size())];
  }

  std::mt19937 random_;
};

/// The model of a text; nothing when it is refused with a message.
std::optional<config::Model> read(const std::string& text) {
  try {
    return parse_hf_config(text, "config.json").model;
  } catch (const CheckpointError& error) {
    EXPECT_NE(std::string_view(error.what()).find("config.json"), std::string_view::npos) << error.what();
    return std::nullopt;
  }
}

TEST(HfConfigFuzz, WhatIsReadIsWrittenAsWhatIsReadAgain) {
  constexpr int rounds = 4000;
  constexpr std::int64_t most_built = 64;  // layers: a model is a list of them
  int reads = 0, refusals = 0;
  for (int round = 0; round < rounds; ++round) {
    Mutator mutator(static_cast<unsigned>(round));
    json config = sound(model::architectures()[mutator.one_of(model::architectures().size())]);
    config = in_dialect(std::move(config), mutator.one_of(dialects));
    if (mutator.one_of(3) == 0) config = as_text_part(std::move(config), mutator.one_of(8));
    for (std::size_t times = 1 + mutator.one_of(3); times > 0; --times) mutator.mutate(config);
    SCOPED_TRACE(config.dump());
    const std::optional<config::Model> model = read(config.dump());
    ++(model ? reads : refusals);
    if (!model || model->layers > most_built) continue;
    try {
      const std::string written = hf_config_text(model::build(*model), {});
      const std::optional<config::Model> again = read(written);
      ASSERT_TRUE(again) << written;
      ASSERT_EQ(hf_config_text(model::build(*again), {}), written);
    } catch (const ConfigError& error) {
      ASSERT_NE(std::string_view(error.what()).find("model."), std::string_view::npos) << error.what();
    }
  }
  EXPECT_GT(reads, rounds / 10);
  EXPECT_GT(refusals, rounds / 10);
}

TEST(HfConfigFuzz, EveryDialectOfRopeIsTheSameModel) {
  for (const model::Architecture& a : model::architectures()) {
    const json written = sound(a);
    for (std::size_t dialect = 0; dialect < dialects; ++dialect) {
      const json config = in_dialect(written, dialect);
      SCOPED_TRACE(config.dump());
      const std::optional<config::Model> model = read(config.dump());
      ASSERT_TRUE(model) << a.name;
      EXPECT_EQ(json::parse(hf_config_text(model::build(*model), {})), written) << a.name;
    }
    const auto plain = read(in_dialect(written, 0).dump());
    for (std::size_t which = 0; which < model::multimodals().size(); ++which) {  // as a text part the same again
      json config = as_text_part(in_dialect(written, which % dialects), which);
      SCOPED_TRACE(config.dump());
      std::optional<config::Model> text = read(config.dump());
      ASSERT_TRUE(text && plain) << a.name;
      text->final_logit_softcapping = plain->final_logit_softcapping;  // left out above
      text->logits_scaling = plain->logits_scaling;
      if (config["model_type"] == "qwen3_vl") continue;  // has no windows
      EXPECT_EQ(json::parse(hf_config_text(model::build(*text), {})), written) << a.name;
    }
    if (a.decoder.learned_positions) continue;
    EXPECT_NE(in_dialect(written, 2), written) << a.name << ": nothing was rewritten";
  }
}

TEST(HfConfigFuzz, BytesThatAreNotTheirsAreAnErrorOrAConfig) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string text = config_text(round % 2 == 0);
    for (unsigned hits = 1 + random() % 4; hits > 0; --hits)
      text[random() % text.size()] = static_cast<char>(random() % 2 == 0 ? 32 + random() % 95 : random() % 256);
    (void)read(text);
  }
}

}  // namespace
}  // namespace trireme::huggingface::config_fuzz_test
