// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "checkpoint/hf_files.hpp"
#include "trireme/base/error.hpp"
#include "trireme/checkpoint/weights.hpp"

namespace trireme::checkpoint {
namespace {

/// A directory of `tensors` in one file.
class OneFile {
 public:
  OneFile(bool tied, const std::vector<RawTensor>& tensors) {
    put_file(directory_ / "config.json", config_text(tied));
    put_file(directory_ / "model.safetensors", weights(tensors));
  }
  [[nodiscard]] HfDirectory open() const { return HfDirectory::open(directory_.path()); }

 private:
  TemporaryDirectory directory_;
};

std::string check_message(bool tied, const std::vector<RawTensor>& tensors) {
  const OneFile files(tied, tensors);
  return message_of<CheckpointError>([&] { files.open().check(small_model(tied)); });
}

std::string open_message(const TemporaryDirectory& directory) {
  return message_of<CheckpointError>([&] { (void)HfDirectory::open(directory.path()); });
}

TEST(HfDirectory, ReadsTheSlicesThatAShardHolds) {
  for (const bool tied : {false, true}) {
    const model::Model model = small_model(tied);
    const std::vector<RawTensor> tensors = tensors_of(model);
    const OneFile files(tied, tensors);
    const HfDirectory directory = files.open();
    directory.check(model);
    EXPECT_EQ(directory.names().size(), tensors.size());
    for (const int shards : {1, 3, 7}) {
      const shard::Layout layout(model, shards);
      std::size_t next = 0;
      for (int b = 0; b < layout.blocks(); ++b) {
        const std::size_t first = next;
        for (int rank = 0; rank < shards; ++rank) {
          for (const shard::Slice& slice : layout[ParamBlock{b}].slices(rank)) {
            const RawTensor& tensor = tensors[first + static_cast<std::size_t>(slice.parameter)];
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
  const std::vector<RawTensor> tensors = tensors_of(small_model(false), "BF16");
  const OneFile files(false, tensors);
  const HfDirectory directory = files.open();
  directory.check(small_model(false));
  for (const float value : read_all(directory, tensors[3])) EXPECT_EQ(value, bf16_to_float(float_to_bf16(value)));
}

TEST(HfDirectory, ReadsFilesWithAnIndex) {
  const TemporaryDirectory directory;
  const std::vector<RawTensor> tensors = tensors_of(small_model(false));
  const std::vector<RawTensor> first(tensors.begin(), tensors.begin() + 7);
  const std::vector<RawTensor> second(tensors.begin() + 7, tensors.end());
  std::string map;
  for (const RawTensor& t : first) map += fmt::format(R"("{}": "m-1.safetensors",)", t.name);
  for (const RawTensor& t : second) map += fmt::format(R"("{}": "m-2.safetensors",)", t.name);
  map.pop_back();
  const std::string index = directory / "model.safetensors.index.json";
  put_file(directory / "config.json", config_text(false));
  put_file(index, R"({"metadata": {"total_size": 1}, "weight_map": {)" + map + "}}");
  put_file(directory / "m-1.safetensors", weights(first));
  expect_parts(open_message(directory), {"index.json", "m-2.safetensors is missing"});
  put_file(directory / "m-2.safetensors", weights(second));
  const HfDirectory opened = HfDirectory::open(directory.path());
  opened.check(small_model(false));
  for (const RawTensor& tensor : tensors) EXPECT_EQ(read_all(opened, tensor), tensor.values);
  put_file(directory / "m-2.safetensors", weights(first));
  expect_parts(open_message(directory), {second.front().name, "is not in m-2.safetensors"});
  put_file(directory / "m-2.safetensors", weights(tensors));
  EXPECT_EQ(open_message(directory), "") << "a tensor in a second file is no harm, the index says which one counts";
}

TEST(HfDirectory, RefusesATensorThatTheIndexDoesNotName) {
  const TemporaryDirectory directory;
  put_file(directory / "config.json", config_text(false));
  put_file(directory / "m",
           weights({{.name = "a", .shape = {1}, .values = {1}}, {.name = "b", .shape = {1}, .values = {1}}}));
  put_file(directory / "model.safetensors.index.json", R"({"weight_map": {"a": "m"}})");
  expect_parts(open_message(directory), {"\"b\"", "not in the index"});
}

TEST(HfDirectory, NeverFollowsAnIndexOutOfItsDirectory) {
  const TemporaryDirectory directory;
  put_file(directory / "config.json", config_text(false));
  for (const std::string name : {"../m", "/etc/passwd", "..", "", "a/b", "m\\u0000"}) {
    put_file(directory / "model.safetensors.index.json", R"({"weight_map": {"a": ")" + name + R"("}})");
    expect_parts(open_message(directory), {"\"a\"", "not the name of a file"});
  }
  put_file(directory / "model.safetensors.index.json", R"({"weight_map": 7})");
  expect_parts(open_message(directory), {"weight_map"});
}

TEST(HfDirectory, SaysWhatADirectoryLacks) {
  const TemporaryDirectory directory;
  EXPECT_FALSE(is_huggingface(directory.path()));
  expect_parts(open_message(directory), {"has no config.json"});
  expect_parts(message_of<CheckpointError>([] { (void)HfDirectory::open("/nonexistent"); }),
               {"/nonexistent", "does not exist"});
  put_file(directory / "config.json", config_text(false));
  EXPECT_TRUE(is_huggingface(directory.path()));
  expect_parts(open_message(directory), {"neither model.safetensors nor"});
  put_file(directory / "pytorch_model.bin", "x");
  expect_parts(open_message(directory), {"pytorch_model.bin", "safe_serialization=True"});
}

TEST(HfDirectory, ClaimsNoMoreLayersThanItHasTensors) {
  const TemporaryDirectory directory;
  std::string config = config_text(false);
  const std::string key = "\"num_hidden_layers\": ";
  const std::size_t at = config.find(key);
  ASSERT_NE(at, std::string::npos);
  config.insert(at + key.size(), "100000");
  put_file(directory / "config.json", config);
  put_file(directory / "model.safetensors", weights(tensors_of(small_model(false))));
  expect_parts(message_of<CheckpointError>([&] { (void)Weights::open(directory.path()); }), {"layers", "tensors"});
}

TEST(HfCheck, ReportsAllMistakesAtOnce) {
  std::vector<RawTensor> tensors = tensors_of(small_model(false));
  tensors[2].name = "model.layers.0.self_attn.q_norm.weight";
  tensors[3].shape = {6, 16};
  tensors[4].name = "model.layers.0.self_attn.o_proj.bias";
  tensors[5] = {.name = "stray", .shape = {1}, .values = {1}};
  expect_parts(
      check_message(false, tensors),
      {"self_attn.q_proj.weight is missing", "self_attn.k_proj.weight has shape [6, 16], the model has [12, 8]",
       "self_attn.v_proj.weight is missing", "q_norm.weight\" would not be used", "query/key norms are not honoured",
       "biases are not honoured", "\"stray\" would not be used", "no such parameter"});
}

TEST(HfCheck, RefusesATypeThatIsNoWeight) {
  std::vector<RawTensor> tensors = tensors_of(small_model(false));
  tensors[0].dtype = "I16";
  expect_parts(check_message(false, tensors), {"model.embed_tokens.weight has dtype I16", "BF16"});
}

TEST(HfCheck, SaysWhatToDoWithoutAHead) {
  std::vector<RawTensor> tensors = tensors_of(small_model(true));
  expect_parts(check_message(false, tensors), {"lm_head.weight is missing", "tie_word_embeddings"});
}

TEST(HfCheck, CountsUnusedTensorsOfOneKind) {
  std::vector<RawTensor> tensors = tensors_of(small_model(false));
  for (const std::string name : {"x.bias", "y.bias", "z.bias"})
    tensors.push_back({.name = name, .shape = {1}, .values = {1}});
  expect_parts(check_message(false, tensors), {"\"x.bias\" would not be used, and 2 like it"});
}

TEST(HfCheck, IgnoresTheFrequenciesOfOldExports) {
  std::vector<RawTensor> tensors = tensors_of(small_model(false));
  tensors.push_back({.name = "model.layers.0.self_attn.rotary_emb.inv_freq", .shape = {3}, .values = {1, 2, 3}});
  EXPECT_EQ(check_message(false, tensors), "");
}

TEST(HfCheck, AcceptsATiedHeadOnlyIfItIsTheEmbedding) {
  std::vector<RawTensor> tensors = tensors_of(small_model(true));
  tensors.push_back(tensors.front());
  tensors.back().name = "lm_head.weight";
  EXPECT_EQ(check_message(true, tensors), "");
  tensors.back().values.back() += 1;
  expect_parts(check_message(true, tensors),
               {"lm_head.weight differs from model.embed_tokens.weight", "tie_word_embeddings"});
  tensors.back().shape = {8, 11};
  expect_parts(check_message(true, tensors), {"lm_head.weight differs"});
}

TEST(HfDirectory, NamesATensorThatIsNotThere) {
  const OneFile files(false, tensors_of(small_model(false)));
  std::vector<float> one(1);
  expect_parts(message_of<CheckpointError>([&] { files.open().read_slice("nothing", {.begin = 0, .end = 1}, one); }),
               {"\"nothing\""});
}

}  // namespace
}  // namespace trireme::checkpoint
