// SPDX-License-Identifier: Apache-2.0
#include "trireme/tokenizer/tokenizer.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "data/files.hpp"
#include "data/spm_model.hpp"
#include "trireme/tokenizer/files.hpp"

namespace trireme::tokenizer {
namespace {

using test::TemporaryDirectory;
using Ids = std::vector<std::int32_t>;
using SentencePieceTokenizer = data::test::SpmTrainTest;

TEST(ByteTokenizer, IsOneIdPerByteAndBack) {
  const auto tokenizer = make_tokenizer("bytes");
  EXPECT_EQ(tokenizer->vocab_size(), 257);
  EXPECT_EQ(tokenizer->document_end(), 256);
  const std::string text = std::string("Tr\xc3\xad") + '\0' + "\xff\n";
  EXPECT_EQ(tokenizer->encode(text), (Ids{'T', 'r', 0xc3, 0xad, 0, 0xff, '\n'}));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
}

TEST(ByteTokenizer, ShowsNothingForTheEndAndAMarkForUnknownIds) {
  const auto tokenizer = make_tokenizer("bytes");
  EXPECT_EQ(tokenizer->decode(Ids{'a', 256, 'b', 257, -1}), "ab\ufffd\ufffd");
}

/// As transformers 5.24, compared by hand with folders of these files.
TEST_F(SentencePieceTokenizer, BeginsDocumentsByTheConfigurationOfItsFolder) {
  const TemporaryDirectory dir;
  const std::string spec = "spm:" + data::test::train_llama_like(dir);
  EXPECT_EQ(make_tokenizer(spec)->document_begin(), Ids{});
  EXPECT_EQ(make_tokenizer(spec)->bos_token(), 1);
  const auto with = [&](const std::string& config) {
    data::test::write_file(dir / "tokenizer_config.json", config);
    return make_tokenizer(spec);
  };
  const auto begun = with(R"({"add_bos_token": true, "bos_token": {"content": "<s>"}, "eos_token": "</s>"})");
  EXPECT_EQ(begun->document_begin(), Ids{1});
  EXPECT_EQ(begun->document_end(), 2);
  const auto files = export_files(spec);
  EXPECT_NE(files.at("tokenizer_config.json").find("\"add_bos_token\": true"), std::string::npos);
  EXPECT_NE(files.at("tokenizer.json").find("TemplateProcessing"), std::string::npos);
  EXPECT_EQ(with(R"({"add_bos_token": true, "bos_token": "</s>"})")->document_begin(), Ids{2});
  EXPECT_EQ(with(R"({"add_bos_token": false})")->document_begin(), Ids{});
  const auto silent = with(R"({"tokenizer_class": "LlamaTokenizer"})");
  EXPECT_EQ(silent->document_begin(), Ids{});
  ASSERT_EQ(silent->warnings().size(), 1U);
  data::test::expect_parts(silent->warnings()[0], {"LlamaTokenizer without add_bos_token", "transformers 4 puts <s>"});
  const auto message = [&](const std::string& config) {
    return data::test::error_of(ExitCode::data, [&] { (void)with(config); });
  };
  data::test::expect_parts(message(R"({"add_bos_token": "yes"})"), {"tokenizer_config.json", "add_bos_token"});
  data::test::expect_parts(message(R"({"bos_token": "<begin>"})"), {"bos_token \"<begin>\" is no piece"});
  data::test::expect_parts(message(R"({"added_tokens_decoder": {"400": {"content": "<|user|>"}}})"),
                           {"add the token \"<|user|>\"", "hf:"});
}

TEST(MakeTokenizer, ReportsAnUnknownTokenizer) {
  const auto message = [](const std::string& spec) {
    return data::test::error_of(ExitCode::usage, [&] { (void)make_tokenizer(spec); });
  };
  data::test::expect_parts(message("tiktoken"), {"\"tiktoken\" is not known. Allowed are \"bytes\"", "\"spm:PATH\""});
  data::test::expect_parts(message("spm:"), {"\"spm:\" is not known"});
}

TEST(MakeTokenizer, NamesMissingAndForeignModels) {
  const TemporaryDirectory dir;
  data::test::write_file(dir / "llama.model", "this is no model");
  data::test::write_file(dir / "tokenizer.json", "{\"version\": \"1.0\"}");
  data::test::write_file(dir / "empty.model", "");
  const auto message = [&](const std::string& name) {
    return data::test::error_of(ExitCode::data, [&] { (void)make_tokenizer("spm:" + (dir / name)); });
  };
  data::test::expect_parts(message("lama.model"), {"SentencePiece model", "lama.model does not exist", "llama.model"});
  data::test::expect_parts(message("llama.model"), {"is not a SentencePiece model", "spm_train"});
  data::test::expect_parts(message("empty.model"), {"is not a SentencePiece model"});
  data::test::expect_parts(message("tokenizer.json"), {"is JSON", "Hugging Face"});
}

TEST(MakeTokenizer, TakesFoldersAndNamesWhatWasMeant) {
  const TemporaryDirectory dir;
  for (const char* name : {"json", "model", "none"}) std::filesystem::create_directory(dir / name);
  for (const auto& [name, text] : export_files("bytes")) data::test::write_file((dir / "json/") + name, text);
  data::test::write_file(dir / "json/tokenizer_config.json", "{\"eos_token\": \"<|endoftext|>\"}");
  data::test::write_file(dir / "model/tokenizer.model", "this is no model");
  for (const char* path : {"json", "json/", "json/tokenizer.json"})
    EXPECT_EQ(make_tokenizer("hf:" + (dir / path))->vocab_size(), 257) << path;
  const auto message = [&](ExitCode code, const std::string& scheme, const std::string& name) {
    return data::test::error_of(code, [&] { (void)make_tokenizer(scheme + (dir / name)); });
  };
  data::test::expect_parts(message(ExitCode::data, "spm:", "model"), {"model/tokenizer.model is not a SentencePiece"});
  data::test::expect_parts(message(ExitCode::data, "spm:", "json"),
                           {"the folder holds no tokenizer.model; give it as hf:" + (dir / "json")});
  data::test::expect_parts(message(ExitCode::data, "hf:", "model"),
                           {"the folder holds no tokenizer.json; give it as spm:" + (dir / "model")});
  data::test::expect_parts(message(ExitCode::data, "hf:", "none"), {"no tokenizer.json; give the folder of"});
  data::test::expect_parts(message(ExitCode::data, "hf:", "model/tokenizer.model"), {"is given as spm:"});
  data::test::expect_parts(message(ExitCode::data, "hf:", "nowhere/Llama-3.1-8B"), {"nothing is downloaded"});
  data::test::expect_parts(message(ExitCode::data, "hf:", "json/tokeniser.json"), {"does not exist; the nearest file"});
  for (const auto& [name, meant] : {std::pair{"json", "hf:"}, {"json/tokenizer.json", "hf:"}, {"model", "spm:"}})
    data::test::expect_parts(message(ExitCode::usage, "", name), {"did you mean " + (meant + (dir / name)) + "?"});
}

TEST_F(SentencePieceTokenizer, ReadsWhatSpmTrainWrites) {
  const TemporaryDirectory dir;
  const auto tokenizer = make_tokenizer("spm:" + data::test::train_unigram(dir));
  EXPECT_GT(tokenizer->vocab_size(), 30);
  EXPECT_EQ(tokenizer->document_end(), 2);  // <unk> <s> </s>
  const Ids ids = tokenizer->encode("the oars of the ship");
  EXPECT_LT(ids.size(), 20);
  EXPECT_EQ(tokenizer->decode(ids), "the oars of the ship");
}

TEST_F(SentencePieceTokenizer, GivesTheSameIdsAsSpmEncode) {
  const TemporaryDirectory dir;
  const std::string model = data::test::train_llama_like(dir);
  data::test::write_file(dir / "text", "three banks of oars row the ship 7 times\n");
  data::test::run("spm_encode --model=" + model + " --output_format=id < " + (dir / "text") + " > " + (dir / "ids"));
  std::string mine;
  for (const std::int32_t id : make_tokenizer("spm:" + model)->encode("three banks of oars row the ship 7 times")) {
    mine += std::to_string(id) + " ";
  }
  mine.back() = '\n';
  EXPECT_EQ(mine, data::test::file_bytes(dir / "ids"));
}

TEST_F(SentencePieceTokenizer, KeepsEveryByteOfAModelThatDoesNotNormalize) {
  const TemporaryDirectory dir;
  const auto tokenizer = make_tokenizer("spm:" + data::test::train_llama_like(dir));
  const std::string text = "Two lines,\n\n  and blanks.\tTr\xc3\xaareme \xe2\x9a\x93\n";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
}

TEST_F(SentencePieceTokenizer, DecodesEndsAndUnknownIdsWithoutHarm) {
  const TemporaryDirectory dir;
  const auto tokenizer = make_tokenizer("spm:" + data::test::train_unigram(dir));
  Ids ids = tokenizer->encode("the ship");
  ids.push_back(tokenizer->document_end());
  EXPECT_EQ(tokenizer->decode(ids), "the ship");
  ids.push_back(1000000);
  ids.push_back(-7);
  EXPECT_TRUE(tokenizer->decode(ids).starts_with("the ship"));
}

TEST_F(SentencePieceTokenizer, NamesAModelWithoutAnEnd) {
  const TemporaryDirectory dir;
  const std::string model = data::test::train_spm(dir, "--model_type=unigram --eos_id=-1");
  data::test::expect_parts(data::test::error_of(ExitCode::data, [&] { (void)make_tokenizer("spm:" + model); }),
                           {"no end-of-sentence piece", "--eos_id"});
}

}  // namespace
}  // namespace trireme::tokenizer
