// SPDX-License-Identifier: Apache-2.0
// GPT-2's directories: Conv1D weights lie transposed, the hub's file leaves out a prefix and holds buffers.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "huggingface/directories.hpp"
#include "trireme/base/error.hpp"

namespace trireme::huggingface {
namespace {

/// As transformers writes it for the published weights, but smaller.
constexpr const char* config_json = R"({"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
  "attn_pdrop": 0.1, "bos_token_id": 10, "embd_pdrop": 0.1, "eos_token_id": 10, "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 16, "n_embd": 8, "n_head": 2, "n_layer": 2,
  "n_positions": 16, "resid_pdrop": 0.1, "summary_type": "cls_index", "summary_use_proj": true, "vocab_size": 11})";

model::Model small_gpt2() { return model::build(parse_hf_config(config_json, "config.json").model); }

/// Every element its own value, in the order of the parameter.
std::vector<float> values_of(const model::Parameter& parameter) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < parameter.elements(); ++i)
    values.push_back(static_cast<float>(i) + 1000.0F * static_cast<float>(parameter.name.size()));
  return values;
}

void write(const std::string& path, const model::Model& model) {
  std::vector<float> values;
  write_huggingface(path, model, {}, [&](model::ParamRef ref) -> std::span<const float> {
    values = values_of(model[ref]);
    return values;
  });
}

template <class Each>
void each_parameter(const model::Model& model, Each each) {
  for (const model::ParameterBlock& block : model.parameter_blocks)
    for (const model::Parameter& parameter : block.parameters) each(parameter);
}

TEST(HuggingfaceGpt2, ConfigIsRead) {
  const HfConfig read = parse_hf_config(config_json, "config.json");
  EXPECT_EQ(read.model.architecture, "gpt2");
  EXPECT_EQ(read.model.intermediate_size, 32) << "n_inner is 4 n_embd where it is not given";
  EXPECT_EQ(read.model.positions, 16);
  EXPECT_TRUE(read.model.tie_embeddings) << "the default of GPT-2";
  EXPECT_EQ(read.max_position_embeddings, 16);
  EXPECT_EQ(read.unread_keys, std::vector<std::string>{});
}

TEST(HuggingfaceGpt2, GivesBackWhatWasWrittenInAnySlices) {
  const TemporaryDirectory root;
  const model::Model model = small_gpt2();
  write(root / "hf", model);
  const HfDirectory directory = HfDirectory::open(root / "hf");
  directory.check(model);
  EXPECT_EQ(model::build(directory.config().model).sizes, model.sizes);
  each_parameter(model, [&](const model::Parameter& parameter) {
    const std::vector<float> whole = values_of(parameter);
    const std::int64_t n = parameter.elements();
    for (const shard::Range part : {shard::Range{0, n}, shard::Range{0, 1}, shard::Range{n / 3, n / 3 + n / 2 + 1}}) {
      std::vector<float> out(static_cast<std::size_t>(part.size()));
      directory.read_slice(parameter, part, out);
      EXPECT_TRUE(std::equal(out.begin(), out.end(), whole.begin() + part.begin)) << parameter.name;
    }
  });
}

TEST(HuggingfaceGpt2, FilesHoldConv1dWeightsAsInByOut) {
  const TemporaryDirectory root;
  write(root / "hf", small_gpt2());
  const SafetensorsFile file = SafetensorsFile::open(root / "hf/model.safetensors");
  const std::string name = "transformer.h.0.mlp.c_fc.weight";
  EXPECT_EQ(file.tensors().find(name)->second.shape, (std::vector<std::int64_t>{8, 32}));
  std::vector<float> first_input(32);
  file.read_fp32(name, {0, 32}, first_input);
  for (int out = 0; out < 32; ++out)
    EXPECT_EQ(first_input[static_cast<std::size_t>(out)], static_cast<float>(8 * out) + 1000.0F * 31);
}

TEST(HuggingfaceGpt2, ReadsTheHubsNamesAndPassesOverItsBuffers) {
  const TemporaryDirectory root;
  const model::Model model = small_gpt2();
  std::vector<RawTensor> tensors;
  each_parameter(model, [&](const model::Parameter& parameter) {
    tensors.push_back({.name = parameter.name.substr(std::string("transformer.").size()),
                       .shape = shape_in_files(parameter),
                       .values = values_of(parameter)});
  });
  tensors.push_back({.name = "h.0.attn.bias", .shape = {1, 1, 2, 2}, .values = {1, 0, 1, 1}});
  std::filesystem::create_directory(root / "hf");
  put_file(root / "hf/config.json", config_json);
  put_file(root / "hf/model.safetensors", weights(tensors));
  const HfDirectory directory = HfDirectory::open(root / "hf");
  directory.check(model);
  const model::Parameter& wte = model[*model.find("transformer.wte.weight")];
  std::vector<float> out(8);
  directory.read_slice(wte, {8, 16}, out);
  EXPECT_EQ(out.front(), values_of(wte)[8]);
}

TEST(HuggingfaceGpt2, RefusesAnotherActivationAndAnotherScale) {
  auto config = nlohmann::json::parse(config_json);
  config["activation_function"] = "relu";
  config["scale_attn_by_inverse_layer_idx"] = true;
  expect_parts(message_of<CheckpointError>([&] { (void)parse_hf_config(config.dump(), "config.json"); }),
               {"activation_function", "gelu_new", "scale_attn_by_inverse_layer_idx"});
}

}  // namespace
}  // namespace trireme::huggingface
