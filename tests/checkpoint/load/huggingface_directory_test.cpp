// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "huggingface/directories.hpp"
#include "trireme/base/error.hpp"
#include "trireme/checkpoint/load/weights.hpp"

namespace trireme::checkpoint {
namespace {

using test::TemporaryDirectory;

/// A directory of `tensors` in one file.
class OneFile {
 public:
  OneFile(bool tied, const std::vector<huggingface::RawTensor>& tensors) {
    huggingface::put_file(directory_ / "config.json", huggingface::config_text(tied));
    huggingface::put_file(directory_ / "model.safetensors", huggingface::weights(tensors));
  }
  [[nodiscard]] huggingface::HfDirectory open() const { return huggingface::HfDirectory::open(directory_.path()); }

 private:
  TemporaryDirectory directory_;
};

std::string check_message(bool tied, const std::vector<huggingface::RawTensor>& tensors) {
  const OneFile files(tied, tensors);
  return huggingface::message_of<CheckpointError>([&] { files.open().check(huggingface::small_model(tied)); });
}

std::string open_message(const TemporaryDirectory& directory) {
  return huggingface::message_of<CheckpointError>([&] { (void)huggingface::HfDirectory::open(directory.path()); });
}

/// safetensors keeps one name of tensors that share memory.
TEST(HfDirectory, TakesATiedTensorUnderTheNameOfTheHead) {
  const model::Model model = huggingface::small_model(true);
  std::vector<huggingface::RawTensor> tensors = huggingface::tensors_of(model);
  ASSERT_EQ(tensors.front().name, "model.embed_tokens.weight");
  const std::vector<float> values = tensors.front().values;
  tensors.front().name = "lm_head.weight";
  const OneFile files(true, tensors);
  const huggingface::HfDirectory directory = files.open();
  directory.check(model);
  std::vector<float> read(values.size());
  directory.read_slice(model[{.block = ParamBlock{0}, .index = 0}],
                       {.begin = 0, .end = static_cast<std::int64_t>(read.size())}, read);
  EXPECT_EQ(read, values);
  EXPECT_NE(check_message(false, tensors).find("model.embed_tokens.weight is missing"), std::string::npos);
}

TEST(HfDirectory, NamesTheProgramWhosePrefixIsBeforeAllNames) {
  for (const auto& [prefix, program] : {std::pair<std::string, std::string>{"_orig_mod.", "torch.compile"},
                                        {"module.", "DistributedDataParallel"},
                                        {"module._orig_mod.", "torch.compile"},
                                        {"base_model.model.", "merge_and_unload"}}) {
    std::vector<huggingface::RawTensor> tensors = huggingface::tensors_of(huggingface::small_model(false));
    for (huggingface::RawTensor& tensor : tensors) tensor.name = prefix + tensor.name;
    const std::string message = check_message(false, tensors);
    EXPECT_NE(message.find('"' + prefix + '"'), std::string::npos) << message;
    EXPECT_NE(message.find(program), std::string::npos) << message;
  }
}

TEST(HfDirectory, ReadsTheSlicesThatAShardHolds) {
  for (const bool tied : {false, true}) {
    const model::Model model = huggingface::small_model(tied);
    const std::vector<huggingface::RawTensor> tensors = huggingface::tensors_of(model);
    const OneFile files(tied, tensors);
    const huggingface::HfDirectory directory = files.open();
    directory.check(model);
    EXPECT_EQ(directory.names().size(), tensors.size());
    for (const int shards : {1, 3, 7}) {
      const shard::Layout layout(model, shards);
      std::size_t next = 0;
      for (int b = 0; b < layout.blocks(); ++b) {
        const std::size_t first = next;
        for (int rank = 0; rank < shards; ++rank) {
          for (const shard::Slice& slice : layout[ParamBlock{b}].slices(rank)) {
            const huggingface::RawTensor& tensor = tensors[first + static_cast<std::size_t>(slice.parameter)];
            std::vector<float> read(static_cast<std::size_t>(slice.elements.size()));
            directory.read_slice(tensor.name, slice.elements, read);
            EXPECT_EQ(read, std::vector(tensor.values.begin() + slice.elements.begin,
                                        tensor.values.begin() + slice.elements.end));
          }
        }
        next += static_cast<std::size_t>(layout[ParamBlock{b}].parameters());
      }
    }
  }
}

TEST(HfDirectory, ReadsBf16) {
  const std::vector<huggingface::RawTensor> tensors = huggingface::tensors_of(huggingface::small_model(false), "BF16");
  const OneFile files(false, tensors);
  const huggingface::HfDirectory directory = files.open();
  directory.check(huggingface::small_model(false));
  for (const float value : huggingface::read_all(directory, tensors[3]))
    EXPECT_EQ(value, huggingface::bf16_to_float(huggingface::float_to_bf16(value)));
}

TEST(HfDirectory, ReadsFilesWithAnIndex) {
  const TemporaryDirectory directory;
  const std::vector<huggingface::RawTensor> tensors = huggingface::tensors_of(huggingface::small_model(false));
  const std::vector<huggingface::RawTensor> first(tensors.begin(), tensors.begin() + 7);
  const std::vector<huggingface::RawTensor> second(tensors.begin() + 7, tensors.end());
  std::string map;
  for (const huggingface::RawTensor& t : first) map += fmt::format(R"("{}": "m-1.safetensors",)", t.name);
  for (const huggingface::RawTensor& t : second) map += fmt::format(R"("{}": "m-2.safetensors",)", t.name);
  map.pop_back();
  const std::string index = directory / "model.safetensors.index.json";
  huggingface::put_file(directory / "config.json", huggingface::config_text(false));
  huggingface::put_file(index, R"({"metadata": {"total_size": 1}, "weight_map": {)" + map + "}}");
  huggingface::put_file(directory / "m-1.safetensors", huggingface::weights(first));
  huggingface::expect_parts(open_message(directory), {"index.json", "m-2.safetensors is missing"});
  huggingface::put_file(directory / "m-2.safetensors", huggingface::weights(second));
  const huggingface::HfDirectory opened = huggingface::HfDirectory::open(directory.path());
  opened.check(huggingface::small_model(false));
  for (const huggingface::RawTensor& tensor : tensors) EXPECT_EQ(huggingface::read_all(opened, tensor), tensor.values);
  huggingface::put_file(directory / "m-2.safetensors", huggingface::weights(first));
  huggingface::expect_parts(open_message(directory), {second.front().name, "is not in m-2.safetensors"});
  huggingface::put_file(directory / "m-2.safetensors", huggingface::weights(tensors));
  EXPECT_EQ(open_message(directory), "") << "a tensor in a second file is no harm, the index says which one counts";
}

TEST(HfDirectory, RefusesATensorThatTheIndexDoesNotName) {
  const TemporaryDirectory directory;
  huggingface::put_file(directory / "config.json", huggingface::config_text(false));
  huggingface::put_file(directory / "m", huggingface::weights({{.name = "a", .shape = {1}, .values = {1}},
                                                               {.name = "b", .shape = {1}, .values = {1}}}));
  huggingface::put_file(directory / "model.safetensors.index.json", R"({"weight_map": {"a": "m"}})");
  huggingface::expect_parts(open_message(directory), {"\"b\"", "not in the index"});
}

TEST(HfDirectory, NeverFollowsAnIndexOutOfItsDirectory) {
  const TemporaryDirectory directory;
  huggingface::put_file(directory / "config.json", huggingface::config_text(false));
  for (const std::string name : {"../m", "/etc/passwd", "..", "", "a/b", "m\\u0000"}) {
    huggingface::put_file(directory / "model.safetensors.index.json", R"({"weight_map": {"a": ")" + name + R"("}})");
    huggingface::expect_parts(open_message(directory), {"\"a\"", "no file name of its folder"});
  }
  huggingface::put_file(directory / "model.safetensors.index.json", R"({"weight_map": 7})");
  huggingface::expect_parts(open_message(directory), {"weight_map"});
}

TEST(HfDirectory, ReportsMissingFilesOfADirectory) {
  const TemporaryDirectory directory;
  EXPECT_FALSE(huggingface::is_huggingface(directory.path()));
  huggingface::expect_parts(open_message(directory), {"has no config.json"});
  huggingface::expect_parts(
      huggingface::message_of<CheckpointError>([] { (void)huggingface::HfDirectory::open("/nonexistent"); }),
      {"/nonexistent", "does not exist"});
  huggingface::put_file(directory / "config.json", huggingface::config_text(false));
  EXPECT_TRUE(huggingface::is_huggingface(directory.path()));
  huggingface::expect_parts(open_message(directory), {"neither model.safetensors nor"});
  huggingface::put_file(directory / "pytorch_model.bin", "x");
  huggingface::expect_parts(open_message(directory), {"pytorch_model.bin", "safe_serialization=True"});
}

TEST(HfDirectory, ClaimsNoMoreLayersThanItHasTensors) {
  const TemporaryDirectory directory;
  std::string config = huggingface::config_text(false);
  const std::string key = "\"num_hidden_layers\": ";
  const std::size_t at = config.find(key);
  ASSERT_NE(at, std::string::npos);
  config.insert(at + key.size(), "1000");
  huggingface::put_file(directory / "config.json", config);
  huggingface::put_file(directory / "model.safetensors",
                        huggingface::weights(huggingface::tensors_of(huggingface::small_model(false))));
  huggingface::expect_parts(huggingface::message_of<CheckpointError>([&] { (void)Weights::open(directory.path()); }),
                            {"layers", "tensors"});
}

TEST(HfCheck, ReportsAllMistakesAtOnce) {
  std::vector<huggingface::RawTensor> tensors = huggingface::tensors_of(huggingface::small_model(false));
  tensors[2].name = "model.layers.0.self_attn.q_norm.weight";
  tensors[3].shape = {6, 16};
  tensors[4].name = "model.layers.0.self_attn.o_proj.bias";
  tensors[5] = {.name = "stray", .shape = {1}, .values = {1}};
  huggingface::expect_parts(
      check_message(false, tensors),
      {"self_attn.q_proj.weight is missing", "self_attn.k_proj.weight has shape [6, 16], the model has [12, 8]",
       "self_attn.v_proj.weight is missing", "q_norm.weight\" would not be used", "query/key norms are not supported",
       "biases are not supported", "\"stray\" would not be used", "no such parameter"});
}

TEST(HfCheck, RefusesATypeThatIsNoWeight) {
  std::vector<huggingface::RawTensor> tensors = huggingface::tensors_of(huggingface::small_model(false));
  tensors[0].dtype = "I16";
  huggingface::expect_parts(check_message(false, tensors), {"model.embed_tokens.weight has dtype I16", "BF16"});
}

TEST(HfCheck, SuggestsARemedyWithoutAHead) {
  std::vector<huggingface::RawTensor> tensors = huggingface::tensors_of(huggingface::small_model(true));
  huggingface::expect_parts(check_message(false, tensors), {"lm_head.weight is missing", "tie_word_embeddings"});
}

TEST(HfCheck, CountsUnusedTensorsOfOneKind) {
  std::vector<huggingface::RawTensor> tensors = huggingface::tensors_of(huggingface::small_model(false));
  for (const std::string name : {"x.bias", "y.bias", "z.bias"})
    tensors.push_back({.name = name, .shape = {1}, .values = {1}});
  huggingface::expect_parts(check_message(false, tensors), {"\"x.bias\" would not be used, and 2 like it"});
}

TEST(HfCheck, IgnoresTheFrequenciesOfOldExports) {
  std::vector<huggingface::RawTensor> tensors = huggingface::tensors_of(huggingface::small_model(false));
  tensors.push_back({.name = "model.layers.0.self_attn.rotary_emb.inv_freq", .shape = {3}, .values = {1, 2, 3}});
  EXPECT_EQ(check_message(false, tensors), "");
}

TEST(HfCheck, AcceptsATiedHeadOnlyIfItIsTheEmbedding) {
  std::vector<huggingface::RawTensor> tensors = huggingface::tensors_of(huggingface::small_model(true));
  tensors.push_back(tensors.front());
  tensors.back().name = "lm_head.weight";
  EXPECT_EQ(check_message(true, tensors), "");
  tensors.back().values.back() += 1;
  huggingface::expect_parts(check_message(true, tensors),
                            {"lm_head.weight differs from model.embed_tokens.weight", "tie_word_embeddings"});
  tensors.back().shape = {8, 11};
  huggingface::expect_parts(check_message(true, tensors), {"lm_head.weight differs"});
}

TEST(HfDirectory, NamesATensorThatIsNotThere) {
  const OneFile files(false, huggingface::tensors_of(huggingface::small_model(false)));
  std::vector<float> one(1);
  huggingface::expect_parts(huggingface::message_of<CheckpointError>(
                                [&] { files.open().read_slice("nothing", {.begin = 0, .end = 1}, one); }),
                            {"\"nothing\""});
}

}  // namespace
}  // namespace trireme::checkpoint

// Fault, exports: tied weights under the head's name; wrapper prefixes (`_orig_mod.`, `module.`) -> read; exit code 4
//   with the wrapper's program
