// SPDX-License-Identifier: Apache-2.0
#include "trireme/tokenizer/files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/spm_model.hpp"
#include "trireme/base/error.hpp"
#include "trireme/tokenizer/library.hpp"
#include "trireme/tokenizer/tokenizer.hpp"

namespace trireme::tokenizer {
namespace {

using nlohmann::json;
using testing::Key;
using testing::UnorderedElementsAre;

/// Writes `files` into a separate directory.
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

TEST(TokenizerFiles, OfATokenizerJsonAreItAndFilesOfItsFolder) {
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
  EXPECT_EQ(fingerprint("hf:" + path), fingerprint("hf:" + path + "/tokenizer.json"));
  EXPECT_EQ(library_in_directory(write(dir, files)), library_of("hf:"));
  EXPECT_EQ(json::parse(export_files("hf:" + path, "pcre2 1").at("tokenizer_config.json"))["trireme_tokenizer_library"],
            "pcre2 1");
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  (void)write(dir, {{"tokenizer_config.json", R"({"eos_token": )" + deep + "}"}});
  EXPECT_FALSE(json::parse(export_files("hf:" + path).at("tokenizer_config.json")).contains("eos_token"));
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

/// A byte-pair tokenizer with two merges, a normalizer and an added token, and the other files of its folder.
struct Small {
  json file = json::parse(R"({"version": "1.0", "truncation": null,
    "added_tokens": [{"id": 6, "content": "<x>", "special": true, "lstrip": false, "rstrip": false,
                      "single_word": false, "normalized": false}],
    "normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "Isolated",
                                                     "invert": false},
    "post_processor": null,
    "model": {"type": "BPE", "dropout": null, "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4, "</s>": 5},
              "merges": ["a b", "b c"]}})");
  json config = json::parse(R"({"eos_token": "</s>"})");
  json map = json::object(), added = json::object();

  [[nodiscard]] std::string fingerprint(const data::test::TemporaryDirectory& dir) const {
    return tokenizer::fingerprint("hf:" + write(dir, {{"tokenizer.json", file.dump(1)},
                                                      {"tokenizer_config.json", config.dump()},
                                                      {"special_tokens_map.json", map.dump()},
                                                      {"added_tokens.json", added.dump()}}));
  }
};

TEST(TokenizerFiles, ThatDecideIdsChangeTheFingerprint) {
  const data::test::TemporaryDirectory dir;
  const std::string before = Small().fingerprint(dir);
  EXPECT_EQ(before.size(), 32U);
  const std::vector<std::pair<const char*, void (*)(Small&)>> changes{
      {"order of merges",
       [](Small& x) {
         x.file["model"]["merges"] = {"b c", "a b"};
       }},
      {"a token's id", [](Small& x) { std::swap(x.file["model"]["vocab"]["a"], x.file["model"]["vocab"]["c"]); }},
      {"an option of the model", [](Small& x) { x.file["model"]["ignore_merges"] = true; }},
      {"normalizer", [](Small& x) { x.file["normalizer"]["type"] = "NFKC"; }},
      {"pre-tokenizer", [](Small& x) { x.file["pre_tokenizer"]["pattern"]["String"] = "c"; }},
      {"inverted pattern", [](Small& x) { x.file["pre_tokenizer"]["invert"] = true; }},
      {"flag of an added token", [](Small& x) { x.file["added_tokens"][0]["rstrip"] = true; }},
      {"post-processor",
       [](Small& x) {
         x.file["post_processor"] = {{"type", "BertProcessing"}, {"cls", {"a", 0}}, {"sep", {"</s>", 5}}};
       }},
      {"eos_token", [](Small& x) { x.config["eos_token"] = "c"; }},
      {"additional_special_tokens", [](Small& x) { x.config["additional_special_tokens"] = {"<y>"}; }},
      {"added_tokens_decoder",
       [](Small& x) {
         x.config["added_tokens_decoder"]["7"] = {{"content", "<y>"}, {"lstrip", true}};
       }},
      {"special_tokens_map.json", [](Small& x) { x.map["eos_token"] = "ab"; }},
      {"added_tokens.json", [](Small& x) { x.added["<y>"] = 7; }}};
  for (const auto& [what, change] : changes) {
    Small other;
    change(other);
    EXPECT_NE(other.fingerprint(dir), before) << what;
  }
}

TEST(TokenizerFiles, ThatDecideNoIdsKeepTheFingerprint) {
  const data::test::TemporaryDirectory dir;
  const std::string before = Small().fingerprint(dir);
  const std::vector<std::pair<const char*, void (*)(Small&)>> changes{
      {"merges as pairs",
       [](Small& x) {
         x.file["model"]["merges"] = json::array({json::array({"a", "b"}), json::array({"b", "c"})});
       }},
      {"options that are off",
       [](Small& x) {
         x.file["model"].update({{"fuse_unk", false}, {"continuing_subword_prefix", ""}, {"unk_token", nullptr}});
         x.file["model"].erase("type");
       }},
      {"padding",
       [](Small& x) {
         x.file["padding"] = {{"strategy", "BatchLongest"}};
       }},
      {"decoder",
       [](Small& x) {
         x.file["decoder"] = {{"type", "Fuse"}};
       }},
      {"chat template", [](Small& x) { x.config["chat_template"] = "{{ x }}"; }},
      {"a pad token that is known", [](Small& x) { x.map["pad_token"] = "<x>"; }}};
  for (const auto& [what, change] : changes) {
    Small other;
    change(other);
    EXPECT_EQ(other.fingerprint(dir), before) << what;
  }
  // Fingerprints of earlier builds are those of the main file alone.
  const std::string spec = "hf:" + (dir / "exported");
  EXPECT_TRUE(has_fingerprint(spec, fingerprint(spec)));
  data::test::write_file(dir / "exported/tokenizer.json", R"({"model": {"vocab": {"</s>": 0}, "merges": []}})");
  EXPECT_TRUE(has_fingerprint(spec, "5684ed56151cadbe"));
  EXPECT_FALSE(has_fingerprint(spec, "5684ed56151cadb0"));
  EXPECT_FALSE(has_fingerprint(spec, before));
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
    EXPECT_FALSE(files.contains("chat_template.jinja"));
    data::test::write_file(dir / "tokenizer_config.json",
                           R"({"eos_token": "</s>", "chat_template": "{{ messages }}", "add_bos_token": true})");
    const std::string with_bos = fingerprint(spec);
    EXPECT_NE(with_bos, fingerprint(spec_in_directory(path)));
    data::test::write_file(dir / "chat_template.jinja", "{{ bos_token }}");
    std::filesystem::create_directory(dir / "additional_chat_templates");
    data::test::write_file(dir / "additional_chat_templates/rag.jinja", "{{ x }}");
    EXPECT_EQ(fingerprint(spec), with_bos);
    const auto chats = export_files(spec);
    EXPECT_EQ(json::parse(chats.at("tokenizer_config.json"))["chat_template"], "{{ messages }}");
    EXPECT_EQ(json::parse(chats.at("tokenizer_config.json"))["add_bos_token"], true);
    EXPECT_EQ(chats.at("chat_template.jinja"), "{{ bos_token }}");
    EXPECT_EQ(chats.at("additional_chat_templates/rag.jinja"), "{{ x }}");
  }
}

/// tokenizer.json is read as the `tokenizers` package reads it.
TEST_F(SentencePieceFiles, GiveTheIdsOfTheModelAroundUserDefinedSymbols) {
  for (const std::string kind : {"bpe", "unigram"})
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

// Fault, data: a checkpoint's tokenizer path leads to another file -> not exported unless a tokenizer, exit code 3
// Fault, data: export of a SentencePiece model with user-defined symbols -> `tokenizer.json` with the model's ids and
//   chat template
