// SPDX-License-Identifier: Apache-2.0
#include "trireme/tokenizer/files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/spm_model.hpp"
#include "trireme/base/error.hpp"
#include "trireme/tokenizer/tokenizer.hpp"

namespace trireme::tokenizer {
namespace {

using nlohmann::json;
using testing::Key;
using testing::UnorderedElementsAre;

/// `files` in a directory of their own.
std::string write(const data::test::TemporaryDirectory& dir, const std::map<std::string, std::string>& files) {
  const std::string path = dir / "exported";
  std::filesystem::create_directory(path);
  for (const auto& [name, text] : files) data::test::write_file(path + "/" + name, text);
  return path;
}

TEST(TokenizerFiles, OfBytesNameEachByteOnce) {
  const auto files = export_files("bytes");
  EXPECT_THAT(files, UnorderedElementsAre(Key("tokenizer.json"), Key("tokenizer_config.json")));
  const json vocabulary = json::parse(files.at("tokenizer.json"))["model"]["vocab"];
  EXPECT_EQ(vocabulary.size(), 257U) << "256 names that differ, and the end of a document";
  EXPECT_EQ(vocabulary["A"], 'A');
  EXPECT_EQ(vocabulary["\xc4\xa0"], ' ') << "as GPT-2 writes a space";
  EXPECT_EQ(vocabulary["<|endoftext|>"], make_tokenizer("bytes")->document_end());
}

TEST(TokenizerFiles, LeadBackToTheTokenizer) {
  const data::test::TemporaryDirectory dir;
  EXPECT_EQ(spec_in_directory(write(dir, export_files("bytes"))), "bytes");
  EXPECT_THAT(export_files(""), testing::IsEmpty());
  EXPECT_THROW((void)export_files("spm:" + (dir / "nowhere.model")), DataError);
  EXPECT_THROW((void)export_files("tiktoken:x"), ConfigError);
}

TEST(TokenizerFiles, AreFoundInDirectoriesOfOthers) {
  const data::test::TemporaryDirectory dir;
  EXPECT_EQ(spec_in_directory(write(dir, {{"config.json", "{}"}})), "") << "nothing is guessed";
  const std::string path = write(dir, {{"tokenizer.model", "x"}});
  EXPECT_EQ(spec_in_directory(path), "spm:" + path + "/tokenizer.model");
  write(dir, {{"tokenizer.json", "{}"}, {"tokenizer_config.json", "{\"eos_token\": \"</s>\"}"}});
  EXPECT_EQ(spec_in_directory(path), "hf:" + path + "/tokenizer.json");
  write(dir, {{"tokenizer_config.json", "{\"trireme_tokenizer\": \"spm:../../etc/passwd\"}"}});
  EXPECT_EQ(spec_in_directory(path), "hf:" + path + "/tokenizer.json") << "a path that leads elsewhere is not followed";
  write(dir, {{"tokenizer_config.json", "{\"trireme_tokenizer\": \"spm:tokenizer.model\"}"}});
  EXPECT_EQ(spec_in_directory(path), "spm:" + path + "/tokenizer.model");
}

TEST(TokenizerFiles, OfATokenizerJsonAreItAndWhatLiesBeside) {
  const data::test::TemporaryDirectory dir;
  const std::string tokenizer = R"({"model": {"type": "BPE", "vocab": {"</s>": 0}, "merges": []}})";
  const std::string path =
      write(dir, {{"tokenizer.json", tokenizer}, {"tokenizer_config.json", "{\"eos_token\": \"</s>\"}"}});
  const auto files = export_files("hf:" + path + "/tokenizer.json");
  EXPECT_EQ(files.at("tokenizer.json"), tokenizer);
  EXPECT_EQ(json::parse(files.at("tokenizer_config.json"))["add_bos_token"], false);
  EXPECT_EQ(json::parse(files.at("tokenizer_config.json"))["eos_token"], "</s>");
  EXPECT_EQ(json::parse(files.at("tokenizer_config.json"))["trireme_tokenizer"], "hf:tokenizer.json");
  EXPECT_EQ(export_files("hf:" + path), files) << "by the directory's name";
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  (void)write(dir, {{"tokenizer_config.json", R"({"eos_token": )" + deep + "}"}});
  EXPECT_FALSE(json::parse(export_files("hf:" + path).at("tokenizer_config.json")).contains("eos_token"));
  EXPECT_EQ(fingerprint("hf:" + path), fingerprint("hf:" + path + "/tokenizer.json"));
}

TEST(TokenizerFiles, AreOfTheFormThatTransformers4ReadsToo) {
  const data::test::TemporaryDirectory dir;
  const std::string path =
      write(dir, {{"tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"</s>": 0, "<s>": 1}, "merges": []},
               "post_processor": {"type": "BertProcessing", "cls": ["<s>", 1], "sep": ["</s>", 0]}})"},
                  {"tokenizer_config.json",
                   R"({"tokenizer_class": "TokenizersBackend", "eos_token": "</s>", "extra_special_tokens": ["<s>"],
                 "model_max_length": 1000000000000000019884624838656})"},
                  {"added_tokens.json", R"({"</s>": 0})"}});
  std::filesystem::create_directory(path + "/additional_chat_templates");
  data::test::write_file(path + "/additional_chat_templates/rag.jinja", "{{ x }}");
  const auto files = export_files("hf:" + path);
  const json config = json::parse(files.at("tokenizer_config.json"));
  EXPECT_EQ(config["tokenizer_class"], "PreTrainedTokenizerFast");
  EXPECT_FALSE(config.contains("extra_special_tokens"));
  EXPECT_EQ(config["additional_special_tokens"], json({"<s>"}));
  EXPECT_FALSE(config.contains("model_max_length")) << "no limit";
  EXPECT_EQ(config["add_bos_token"], true);
  EXPECT_EQ(config["add_eos_token"], true);
  EXPECT_EQ(files.at("additional_chat_templates/rag.jinja"), "{{ x }}");
  EXPECT_EQ(files.at("added_tokens.json"), R"({"</s>": 0})");
  EXPECT_EQ(json::parse(export_files("bytes").at("tokenizer_config.json"))["add_bos_token"], false);
}

/// A checkpoint names its tokenizer: what it names is not copied unless it is one.
TEST(TokenizerFiles, AreNoFilesThatAreNoTokenizer) {
  const data::test::TemporaryDirectory dir;
  for (const char* text : {"root:x:0", "{\"secret\": 1}", "{\"model\": 1}"}) {
    data::test::write_file(dir / "passwords.json", text);
    EXPECT_THROW((void)export_files("hf:" + (dir / "passwords.json")), DataError) << text;
    EXPECT_THROW((void)export_files("spm:" + (dir / "passwords.json")), DataError) << text;
  }
}

TEST(TokenizerFiles, AreToldApartByTheirContents) {
  const data::test::TemporaryDirectory dir;
  const std::string one = write(dir, {{"tokenizer.model", "x"}}) + "/tokenizer.model";
  const std::string before = fingerprint("spm:" + one);
  EXPECT_EQ(before.size(), 16U);
  data::test::write_file(one, "y");
  EXPECT_NE(fingerprint("spm:" + one), before);
  EXPECT_EQ(fingerprint("bytes"), "");
  EXPECT_EQ(absolute_spec("bytes"), "bytes");
  EXPECT_EQ(absolute_spec("spm:a/../b.model"), "spm:" + (std::filesystem::current_path() / "b.model").string());
}

class SentencePieceFiles : public data::test::SpmTrainTest {};

TEST_F(SentencePieceFiles, HoldTheModelAndItsPieces) {
  for (const bool bpe : {false, true}) {
    const data::test::TemporaryDirectory dir;
    const std::string spec = "spm:" + (bpe ? data::test::train_llama_like(dir) : data::test::train_unigram(dir));
    const auto files = export_files(spec);
    const auto tokenizer = make_tokenizer(spec);
    const json form = json::parse(files.at("tokenizer.json"));
    EXPECT_EQ(form["model"]["type"], bpe ? "BPE" : "Unigram");
    EXPECT_EQ(form["model"]["vocab"].size(), static_cast<std::size_t>(tokenizer->vocab_size()));
    EXPECT_EQ(form["model"]["byte_fallback"], bpe);
    EXPECT_EQ(form["added_tokens"].size(), 3U) << "<unk>, <s>, </s>";
    EXPECT_EQ(json::parse(files.at("tokenizer_config.json"))["eos_token"], "</s>");
    EXPECT_EQ(json::parse(files.at("tokenizer_config.json"))["add_bos_token"], false);
    EXPECT_TRUE(form["post_processor"].is_null());
    const std::string path = write(dir, files);
    EXPECT_EQ(spec_in_directory(path), "spm:" + path + "/tokenizer.model");
    EXPECT_EQ(fingerprint(spec_in_directory(path)), fingerprint(spec));
    const std::string text = data::test::ship_text();
    EXPECT_EQ(make_tokenizer(spec_in_directory(path))->encode(text), tokenizer->encode(text));
  }
}

/// tokenizer.json is read as the `tokenizers` package reads it.
TEST_F(SentencePieceFiles, GiveTheIdsOfTheModelAroundUserDefinedSymbols) {
  for (const std::string kind : {"bpe"})
    for (const std::string blanks : {"true", "false"}) {
      const data::test::TemporaryDirectory dir;
      const std::string spec =
          "spm:" + data::test::train_spm(dir, "--model_type=" + kind +
                                                  " --vocab_size=400"
                                                  " --byte_fallback=true --normalization_rule_name=identity "
                                                  "--remove_extra_whitespaces=" +
                                                  blanks + " --user_defined_symbols='<sym>,@@,[x]'");
      const auto files = export_files(spec);
      EXPECT_EQ(json::parse(files.at("tokenizer_config.json"))["split_special_tokens"], true);
      const std::string path = write(dir, files);
      const auto model = make_tokenizer(spec), exported = make_tokenizer("hf:" + path + "/tokenizer.json");
      const std::vector<std::string> parts = {"<sym>",    "@@", "[x]", " ",        "  ",
                                              "the ship", "at", "\n",  "\xc3\xa9", "a b "};
      for (const std::string& first : parts)
        for (const std::string& second : parts)
          for (const std::string& third : parts) {
            const std::string text = first + second + third;
            const std::size_t begin = text.find_first_not_of(' '), end = text.find_last_not_of(' ');
            const std::string inner = begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
            if (blanks == "true" && (inner == "<sym>" || inner == "@@" || inner == "[x]")) continue;  // documented
            ASSERT_EQ(exported->encode(text), model->encode(text)) << kind << " \"" << text << "\"";
          }
    }
}

}  // namespace
}  // namespace trireme::tokenizer
