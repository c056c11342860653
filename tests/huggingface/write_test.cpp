// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "huggingface/directories.hpp"
#include "trireme/base/error.hpp"

namespace trireme::huggingface {
namespace {

/// Gives the values of `tensors_of(model)`.
class Source {
 public:
  explicit Source(const model::Model& model) : model_(model), tensors_(tensors_of(model)) {}

  [[nodiscard]] const std::vector<RawTensor>& tensors() const { return tensors_; }
  [[nodiscard]] ParameterProvider provider() {
    return [this](model::ParamRef ref) -> std::span<const float> {
      const RawTensor& tensor = tensors_.at(next_++);
      EXPECT_EQ(tensor.name, model_[ref].name) << "parameters are asked for in the model's order";
      return tensor.values;
    };
  }

 private:
  const model::Model& model_;
  std::vector<RawTensor> tensors_;
  std::size_t next_ = 0;
};

void write(const std::string& directory, const model::Model& model, const HfWriteOptions& options) {
  Source source(model);
  write_huggingface(directory, model, options, source.provider());
}

TEST(WriteHuggingface, GivesBackWhatWasWritten) {
  const TemporaryDirectory root;
  for (const bool tied : {false, true}) {
    for (const std::int64_t most : {5'000'000'000L, 1000L, 1L}) {
      const model::Model model = small_model(tied);
      const std::string path = root / fmt::format("{}-{}", tied, most);
      write(path, model, {.most_file_bytes = {most}});
      const HfDirectory directory = HfDirectory::open(path);
      directory.check(model);
      EXPECT_EQ(model::build(directory.config().model).sizes, model.sizes);
      for (const RawTensor& tensor : tensors_of(model)) EXPECT_EQ(read_all(directory, tensor), tensor.values);
      EXPECT_EQ(std::filesystem::exists(path + "/model.safetensors"), most > 1'000'000);
    }
  }
}

TEST(WriteHuggingface, NamesItsFilesAsTransformersDoes) {
  const TemporaryDirectory root;
  write(root / "hf", small_model(false), {.dtype = DType::bf16, .most_file_bytes = {2000}});
  const std::string index = get_file(root / "hf/model.safetensors.index.json");
  expect_parts(index, {"\"total_size\": " + std::to_string(2 * small_model(false).elements()), "model-00001-of-0000"});
  EXPECT_TRUE(std::filesystem::exists(root / "hf/model-00001-of-00002.safetensors"));
  EXPECT_EQ(root.names(), std::vector<std::string>{"hf"});
}

/// In bf16 the steps of a correction bias would vanish.
TEST(WriteHuggingface, KeepsCorrectionBiasesInFp32) {
  const TemporaryDirectory root;
  const model::Model model = model::build({.architecture = "glm4_moe",
                                           .vocab_size = 11,
                                           .hidden_size = 8,
                                           .intermediate_size = 12,
                                           .layers = 1,
                                           .heads = 4,
                                           .kv_heads = 2,
                                           .head_dim = 6,
                                           .experts = 4,
                                           .experts_per_token = 2,
                                           .expert_size = 6,
                                           .shared_size = 6});
  write(root / "hf", model, {.dtype = DType::bf16});
  const HfDirectory directory = HfDirectory::open(root / "hf");
  int rounded = 0, biases = 0;
  for (const RawTensor& tensor : tensors_of(model)) {
    const bool exact = read_all(directory, tensor) == tensor.values;
    rounded += exact ? 0 : 1;
    if (!tensor.name.ends_with("e_score_correction_bias")) continue;
    ++biases;
    EXPECT_TRUE(exact);
  }
  EXPECT_EQ(biases, 1);
  EXPECT_GT(rounded, 5) << "all else is in bf16";
}

TEST(WriteHuggingface, KeepsRopeScalingAndSpecialTokens) {
  const TemporaryDirectory root;
  config::Model config = parse_hf_config(config_text(true), "config.json").model;
  config.rope_theta = 500000;
  config.rope_scaling = config::RopeScaling{.factor = 32};
  const model::Model model = model::build(config);
  write(root / "hf", model,
        {.dtype = DType::bf16, .max_position_embeddings = 77, .bos_token_id = 1, .eos_token_ids = {2, 3}});
  const HfConfig read = HfDirectory::open(root / "hf").config();
  EXPECT_EQ(model::build(read.model).sizes, model.sizes);
  EXPECT_EQ(read.max_position_embeddings, 77);
  EXPECT_EQ(read.bos_token_id, 1);
  EXPECT_EQ(read.eos_token_ids, (std::vector<std::int64_t>{2, 3}));
}

TEST(WriteHuggingface, WritesNoSpecialTokensWhereThereAreNone) {
  const TemporaryDirectory root;
  write(root / "hf", small_model(true), {});
  expect_parts(get_file(root / "hf/config.json"), {"\"bos_token_id\": null", "\"eos_token_id\": null"});
  expect_parts(get_file(root / "hf/generation_config.json"), {"\"eos_token_id\": null"});
}

/// Keys of a downloaded model are in its export, with the ends of a text that training adds.
TEST(WriteHuggingface, RepeatsGenerationKeysOfTheGivenFiles) {
  const TemporaryDirectory root;
  const auto given = [&](const std::string& config, const std::string& generation) {
    std::filesystem::remove_all(root / "given");
    put_file(root / "given/config.json", config_text(true, config));
    if (!generation.empty()) put_file(root / "given/generation_config.json", generation);
    return read_hf_config(root / "given");
  };
  const auto exported = [&](const HfConfig& read, const std::vector<std::int64_t>& more) {
    HfWriteOptions options{.max_position_embeddings = read.max_position_embeddings,
                           .bos_token_id = read.bos_token_id,
                           .eos_token_ids = read.eos_token_ids,
                           .kept = read.kept,
                           .kept_generation = read.kept_generation};
    options.eos_token_ids.insert(options.eos_token_ids.begin(), more.begin(), more.end());
    std::filesystem::remove_all(root / "hf");
    write(root / "hf", model::build(read.model), options);
    return std::pair(nlohmann::json::parse(get_file(root / "hf/config.json")),
                     nlohmann::json::parse(get_file(root / "hf/generation_config.json")));
  };
  const HfConfig chat = given(
      R"(, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "use_cache": false, "dtype": "float32",
           "id2label": {"0": "a"}, "attention_bias": false, "rope_parameters": {"rope_theta": 9.0}, "auto_map": {"a": "b"}, "transformers_version": "5.0", "note": "x")",
      R"({"bos_token_id": 1, "eos_token_id": [2, 5], "temperature": 0.6, "do_sample": true, "transformers_version": "5"})");
  EXPECT_EQ(chat.eos_token_ids, (std::vector<std::int64_t>{2, 5})) << "of both files";
  for (const std::vector<std::int64_t>& more : {std::vector<std::int64_t>{}, {7}}) {
    const auto [config, generation] = exported(chat, more);
    using nlohmann::json;
    EXPECT_EQ(config["bos_token_id"], 1);
    EXPECT_EQ(config["eos_token_id"], more.empty() ? json(2) : json({7, 2}));
    EXPECT_EQ(config["pad_token_id"], 0);
    EXPECT_EQ(config["use_cache"], false);
    EXPECT_EQ(config["id2label"]["0"], "a");
    EXPECT_EQ(config["note"], "x");
    EXPECT_EQ(config["rope_theta"], 9.0);
    for (const char* other :
         {"rope_parameters", "dtype", "auto_map", "transformers_version", "max_position_embeddings"})
      EXPECT_FALSE(config.contains(other)) << other;
    EXPECT_EQ(generation["eos_token_id"], more.empty() ? json({2, 5}) : json({7, 2, 5}));
    EXPECT_EQ(generation["temperature"], 0.6);
    EXPECT_EQ(generation["do_sample"], true);
    EXPECT_EQ(generation["bos_token_id"], 1);
    EXPECT_FALSE(generation.contains("transformers_version"));
  }
  const auto [config, generation] = exported(given(R"(, "eos_token_id": [3, 4])", R"({"top_p": 0.9})"), {});
  EXPECT_EQ(config["eos_token_id"], (nlohmann::json{3, 4}));
  EXPECT_EQ(generation, (nlohmann::json{{"top_p", 0.9}})) << "neither adds what was not there";
  const auto without = exported(given(R"(, "eos_token_id": [3, 4])", ""), {});
  EXPECT_EQ(without.second["eos_token_id"], (nlohmann::json{3, 4}));
  expect_parts(message_of<CheckpointError>([&] { (void)given("", R"({"eos_token_id": [3, "</s>"]})"); }),
               {"generation_config.json", "eos_token_id", "token ids"});
  expect_parts(message_of<CheckpointError>([&] { (void)given("", "[]"); }), {"generation_config.json", "table"});
}

TEST(WriteHuggingface, RefusesADirectoryInUse) {
  const TemporaryDirectory root;
  put_file(root / "hf/config.json", "old");
  expect_parts(message_of<CheckpointError>([&] { write(root / "hf", small_model(true), {}); }),
               {"is not empty", "run.overwrite"});
  EXPECT_EQ(get_file(root / "hf/config.json"), "old");
  put_file(root / "file", "x");
  expect_parts(message_of<CheckpointError>([&] { check_export_target(root / "file", true); }), {"is not a directory"});
}

TEST(WriteHuggingface, TakesAnEmptyDirectoryAndMakesMissingOnes) {
  const TemporaryDirectory root;
  std::filesystem::create_directory(root / "empty");
  write(root / "empty/", small_model(true), {});
  HfDirectory::open(root / "empty").check(small_model(true));
  write(root / "a/b/c", small_model(true), {});
  HfDirectory::open(root / "a/b/c").check(small_model(true));
}

TEST(WriteHuggingface, ReplacesAnEarlierExportAsAWhole) {
  const TemporaryDirectory root;
  write(root / "hf", small_model(false), {.most_file_bytes = {1000}});
  write(root / "hf", small_model(true), {.overwrite = true});
  HfDirectory::open(root / "hf").check(small_model(true));
  EXPECT_FALSE(std::filesystem::exists(root / "hf/model.safetensors.index.json"));
  EXPECT_EQ(root.names(), std::vector<std::string>{"hf"});
}

TEST(WriteHuggingface, NeverDeletesFilesOfOthers) {
  const TemporaryDirectory root;
  write(root / "hf", small_model(true), {});
  put_file(root / "hf/thesis.tex", "years");
  expect_parts(message_of<CheckpointError>([&] { write(root / "hf", small_model(true), {.overwrite = true}); }),
               {"thesis.tex", "move it away"});
  EXPECT_EQ(get_file(root / "hf/thesis.tex"), "years");
}

/// A downloaded model has the file names of an export.
TEST(WriteHuggingface, NeverReplacesWeightsThatItDidNotWrite) {
  const TemporaryDirectory root;
  const auto refused = [&](const std::string& directory, const std::string& named) {
    expect_parts(message_of<CheckpointError>([&] { write(directory, small_model(true), {.overwrite = true}); }),
                 {named, "Trireme wrote", "move it away"});
  };
  for (const std::string header :
       {R"({"__metadata__":{"format":"pt"}})", R"({"__metadata__":{"format":"pt","writer":"another"}})",
        R"({"__metadata__":{"writer":3}})", R"({"__metadata__":"trireme"})", "{}", "{"}) {
    write(root / "hf", small_model(true), {});
    put_file(root / "hf/model.safetensors", safetensors(header, ""));
    refused(root / "hf", "model.safetensors");
    EXPECT_EQ(get_file(root / "hf/model.safetensors"), safetensors(header, ""));
    std::filesystem::remove_all(root / "hf");
  }
  write(root / "parts", small_model(true), {.most_file_bytes = {1000}});
  put_file(root / "parts/model-00002-of-00002.safetensors", safetensors("{}", ""));
  refused(root / "parts", "model-00002-of-00002.safetensors");
  put_file(root / "sizes/config.json", "{}");
  refused(root / "sizes", "no weights");
}

TEST(WriteHuggingface, LeavesWhatWasThereWhenItFails) {
  const TemporaryDirectory root;
  write(root / "hf", small_model(true), {});
  const std::string before = get_file(root / "hf/model.safetensors");
  const model::Model model = small_model(true);
  Source source(model);
  int calls = 0;
  const auto failing = [&, provider = source.provider()](model::ParamRef ref) {
    if (++calls == 5) throw WriteError("the disk is full");
    return provider(ref);
  };
  EXPECT_THROW(write_huggingface(root / "hf", model, {.overwrite = true}, failing), WriteError);
  EXPECT_EQ(get_file(root / "hf/model.safetensors"), before);
  EXPECT_EQ(root.names(), std::vector<std::string>{"hf"});
}

TEST(WriteHuggingface, CleansUpAfterAKilledExport) {
  const TemporaryDirectory root;
  put_file(root / ".hf.partial/model.safetensors.partial", "half");
  write(root / "hf", small_model(true), {});
  EXPECT_EQ(root.names(), std::vector<std::string>{"hf"});
  EXPECT_EQ(HfDirectory::open(root / "hf").names().size(), tensors_of(small_model(true)).size());
}

TEST(WriteHuggingface, TreatsAPartOfAParameterAsABug) {
  const TemporaryDirectory root;
  const std::vector<float> one(1);
  EXPECT_THROW(write_huggingface(root / "hf", small_model(true), {}, [&](model::ParamRef) { return std::span(one); }),
               BugError);
  EXPECT_TRUE(root.names().empty());
}

}  // namespace
}  // namespace trireme::huggingface
