// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "data/files.hpp"
#include "tokenizer/text/utf8.hpp"
#include "trireme/tokenizer/tokenizer.hpp"

namespace trireme::tokenizer::huggingface_test {
namespace {

using data::test::error_of;
using data::test::expect_parts;
using data::test::write_file;
using nlohmann::json;
using test::TemporaryDirectory;
using Ids = std::vector<std::int32_t>;

/// All bytes with their value as id, "he" 256, "hel" 257, " w" 258 and <|endoftext|> 259.
json byte_level() {
  json vocabulary;
  for (int byte = 0; byte < 256; ++byte)
    vocabulary[hf::utf8(hf::byte_character(static_cast<unsigned char>(byte)))] = byte;
  vocabulary["he"] = 256;
  vocabulary["hel"] = 257;
  vocabulary["Ġw"] = 258;
  return {{"added_tokens", {{{"id", 259}, {"content", "<|endoftext|>"}, {"special", true}}}},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", {"h e", "he l", "Ġ w"}}}}};
}

/// As of Llama 2: <unk> 0, <s> 1, </s> 2, bytes from 3 on, then U+2581, a, b, U+2581 a.
json sentencepiece_like() {
  json vocabulary = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int byte = 0; byte < 256; ++byte) vocabulary[fmt::format("<0x{:02X}>", byte)] = 3 + byte;
  vocabulary["▁"] = 259;
  vocabulary["a"] = 260;
  vocabulary["b"] = 261;
  vocabulary["▁a"] = 262;
  const json special = {{"<s>", {{"id", "<s>"}, {"ids", {1}}, {"tokens", {"<s>"}}}}};
  return {{"added_tokens",
           {{{"id", 0}, {"content", "<unk>"}, {"special", true}},
            {{"id", 1}, {"content", "<s>"}, {"special", true}},
            {{"id", 2}, {"content", "</s>"}, {"special", true}}}},
          {"normalizer",
           {{"type", "Sequence"},
            {"normalizers",
             {{{"type", "Prepend"}, {"prepend", "▁"}},
              {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}}}}},
          {"pre_tokenizer", nullptr},
          {"post_processor",
           {{"type", "TemplateProcessing"},
            {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
            {"special_tokens", special}}},
          {"decoder",
           {{"type", "Sequence"},
            {"decoders",
             {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
              {{"type", "ByteFallback"}},
              {{"type", "Fuse"}},
              {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
          {"model",
           {{"type", "BPE"},
            {"unk_token", "<unk>"},
            {"fuse_unk", true},
            {"byte_fallback", true},
            {"vocab", vocabulary},
            {"merges", json::array({"▁ a"})}}}};
}

class HuggingFaceTokenizer : public testing::Test {
 protected:
  std::unique_ptr<Tokenizer> open(const json& file) const {
    write_file(dir_ / "tokenizer.json", file.dump());
    return make_tokenizer("hf:" + (dir_ / "tokenizer.json"));
  }
  std::string refusal(const json& file) const {
    return error_of(ExitCode::data, [&] { (void)open(file); });
  }
  TemporaryDirectory dir_;
};

TEST_F(HuggingFaceTokenizer, SplitsByGpt2sPatternAndMergesInOrder) {
  const auto tokenizer = open(byte_level());
  EXPECT_EQ(tokenizer->encode("hello  world's"), (Ids{257, 'l', 'o', ' ', 258, 'o', 'r', 'l', 'd', '\'', 's'}));
  EXPECT_EQ(tokenizer->vocab_size(), 260);
  EXPECT_EQ(tokenizer->document_end(), 259);
  EXPECT_EQ(tokenizer->document_begin(), Ids{});
  EXPECT_EQ(tokenizer->encode("he<|endoftext|>he"), (Ids{256, 259, 256}));
  EXPECT_EQ(tokenizer->encode(""), Ids{});
}

TEST_F(HuggingFaceTokenizer, ReadsADirectoryToo) {
  const Ids ids = open(byte_level())->encode("hell");
  EXPECT_EQ(make_tokenizer("hf:" + dir_.path())->encode("hell"), ids);
}

TEST_F(HuggingFaceTokenizer, DecodesWhatItEncodedWithoutSpecialTokens) {
  const std::string text = "hello\n\n w\xc3\xb6rld \xf0\x9f\x9a\xa2";
  const auto bytes = open(byte_level());
  Ids ids = bytes->encode(text);
  ids.push_back(259);
  EXPECT_EQ(bytes->decode(ids), text);
  EXPECT_EQ(bytes->decode(Ids{'a', 0xC3}), "a\ufffd");
  EXPECT_EQ(bytes->decode(Ids{'a', 1000000, -1}), "a\ufffd\ufffd");
  const auto pieces = open(sentencepiece_like());
  EXPECT_EQ(pieces->decode(pieces->encode(text)), text);
}

TEST_F(HuggingFaceTokenizer, ReadsBytesThatAreNoUtf8AsReplacementCharacters) {
  for (const json& file : {byte_level(), sentencepiece_like()}) {
    const auto tokenizer = open(file);
    EXPECT_EQ(tokenizer->encode("a\xff\xf0\x9f\x9a b\xed\xa0\x80"),
              tokenizer->encode("a\ufffd\ufffd b\ufffd\ufffd\ufffd"));
    EXPECT_EQ(tokenizer->encode("\xc3"), tokenizer->encode("\ufffd"));
  }
}

TEST_F(HuggingFaceTokenizer, HasATokenForEveryByteOfAnUnknownCharacter) {
  const auto tokenizer = open(sentencepiece_like());
  EXPECT_EQ(tokenizer->encode("a b"), (Ids{262, 259, 261}));
  EXPECT_EQ(tokenizer->encode("a\xc3\xa9"), (Ids{262, 3 + 0xC3, 3 + 0xA9}));
  EXPECT_EQ(tokenizer->document_begin(), Ids{1});
  EXPECT_EQ(tokenizer->document_end(), 2);
}

TEST_F(HuggingFaceTokenizer, TakesTheLikeliestPiecesOfAUnigramModel) {
  json file = sentencepiece_like();
  file["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "▁"}};
  file["normalizer"] = nullptr;
  file["decoder"] = {{"type", "Metaspace"}, {"replacement", "▁"}};
  file["model"] = {
      {"type", "Unigram"},
      {"unk_id", 0},
      {"vocab", json::parse(R"([["<unk>", 0], ["<s>", 0], ["</s>", 0], ["▁", -2.5], ["a", -1.5], ["b", -1.5],
                                ["▁a", -3.5], ["ab", -2.5]])")}};
  const auto tokenizer = open(file);
  EXPECT_EQ(tokenizer->encode("a ab"), (Ids{6, 3, 7})) << "-3.5 beats -4, -5 ties with -5";
  EXPECT_EQ(tokenizer->encode("xyb"), (Ids{3, 0, 5})) << "a run of unknown characters is one token";
  EXPECT_EQ(tokenizer->decode(Ids{6, 3, 7}), "a ab");
  file["model"]["unk_id"] = nullptr;
  expect_parts(error_of(ExitCode::data, [&] { (void)open(file)->encode("ax"); }), {"no unk_id", "U+0078"});
}

TEST_F(HuggingFaceTokenizer, EncodesAPieceOfAnyLengthAlike) {
  const auto tokenizer = open(byte_level());
  Ids expected;
  std::string text;
  for (int i = 0; i < 1000; ++i) {
    text += "hel";
    expected.push_back(257);
  }
  EXPECT_EQ(tokenizer->encode(text), expected);
}

TEST_F(HuggingFaceTokenizer, EncodesOnSeveralThreads) {
  const auto tokenizer = open(byte_level());
  std::vector<Ids> ids(4);
  {
    std::vector<std::jthread> threads;
    for (Ids& mine : ids)
      threads.emplace_back([&mine, &tokenizer] {
        for (int i = 0; i < 200; ++i) mine = tokenizer->encode("hello world " + std::to_string(i % 7));
      });
  }
  for (const Ids& mine : ids) EXPECT_EQ(mine, tokenizer->encode("hello world 3"));
}

TEST_F(HuggingFaceTokenizer, RefusesWhatItDoesNotSupportByItsKey) {
  const auto with = [](const char* pointer, json value) {
    json file = byte_level();
    file[json::json_pointer(pointer)] = std::move(value);
    return file;
  };
  expect_parts(refusal(with("/model/type", "WordPiece")),
               {"tokenizer.json: model.type is \"WordPiece\"", "BPE and Unigram"});
  expect_parts(refusal(with("/model/dropout", 0.1)), {"model.dropout is not supported"});
  expect_parts(refusal(with("/model/merges", json::array({"h e", "x"}))), {"model.merges[1] is not a pair"});
  expect_parts(refusal(with("/model/merges", json::array({"h x"}))), {"model.merges[0] merges \"h\" and \"x\""});
  expect_parts(
      refusal(with("/normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Nmt"}}}}})),
      {"normalizer.normalizers[1].type is \"Nmt\", which is not supported", "NFKC"});
  expect_parts(refusal(with("/pre_tokenizer", {{"type", "UnicodeScripts"}})),
               {"pre_tokenizer.type is \"UnicodeScripts\""});
  expect_parts(
      refusal(with("/pre_tokenizer", {{"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"Regex", "a$"}}}})),
      {"pre_tokenizer.pattern.Regex", "a$", "edge of a line"});
  expect_parts(refusal(with("/decoder", {{"type", "CTC"}})), {"decoder.type is \"CTC\""});
  expect_parts(refusal(with("/post_processor", {{"type", "X"}})), {"post_processor.type is \"X\""});
  expect_parts(refusal(with("/added_tokens/0/id", "x")), {"added_tokens[0].id is not an integer"});
  expect_parts(refusal({{"a", 1}}), {"no \"model\""});
}

TEST_F(HuggingFaceTokenizer, TakesTheEndOfADocumentFromFilesOfItsFolder) {
  const std::string configuration = dir_ / "tokenizer_config.json";
  write_file(configuration, R"({"eos_token": {"content": "hel"}})");
  EXPECT_EQ(open(byte_level())->document_end(), 257);
  write_file(configuration, R"({"eos_token": "</s>"})");
  expect_parts(refusal(byte_level()), {"tokenizer_config.json: eos_token \"</s>\" is not a token of"});
  write_file(configuration, "{}");
  json file = byte_level();
  file["added_tokens"] = json::array();
  expect_parts(refusal(file), {"does not name the token that ends a document", "tokenizer_config.json"});
  file["added_tokens"] = {{{"id", 259}, {"content", "</s>"}}, {{"id", 260}, {"content", "<|endoftext|>"}}};
  expect_parts(refusal(file),
               {"does not name the token that ends a document (<|endoftext|>, </s> are among its tokens)"});
}

/// <unk> 0, </s> 1, a 2, b 3, a blank 4 and <v> 5, of which none is an added token. Expected ids are those of
/// transformers 5.24 and 4.57.
json few_letters(const json& added = json::array()) {
  return {{"added_tokens", added},
          {"model",
           {{"type", "BPE"},
            {"unk_token", "<unk>"},
            {"vocab", {{"<unk>", 0}, {"</s>", 1}, {"a", 2}, {"b", 3}, {" ", 4}, {"<v>", 5}}},
            {"merges", json::array()}}}};
}

TEST_F(HuggingFaceTokenizer, TakesAddedTokensFromFilesOfItsFolder) {
  const auto ids = [&](const std::string& text, json config, const json& map = nullptr, const json& added = nullptr) {
    config["eos_token"] = "</s>";
    write_file(dir_ / "tokenizer_config.json", config.dump());
    for (const auto& [name, file] : {std::pair("special_tokens_map.json", map), {"added_tokens.json", added}}) {
      std::filesystem::remove(dir_ / name);
      if (!file.is_null()) write_file(dir_ / name, file.dump());
    }
    return open(few_letters({{{"id", 0}, {"content", "<unk>"}, {"special", true}}}))->encode(text);
  };
  const json listed = {{"10", {{"content", "<y>"}}}, {"9", {{"content", "<x>"}, {"lstrip", true}, {"rstrip", true}}}};
  EXPECT_EQ(ids("a <x> b", {{"added_tokens_decoder", listed}}), (Ids{2, 6, 3})) << "with its flags";
  EXPECT_EQ(ids("<y><x></s><z>", {{"added_tokens_decoder", listed}, {"additional_special_tokens", {"<z>"}}}),
            (Ids{7, 6, 1, 8}))
      << "numbered behind the vocabulary, lists by id first";
  EXPECT_EQ(ids("<x><y>", {{"extra_special_tokens", {"<x>", "<y>"}}}), (Ids{6, 7}));
  EXPECT_EQ(ids("a</s>b<v>", json::object()), (Ids{2, 1, 3, 0, 0, 0})) << "eos_token is one token in a text";
  EXPECT_EQ(ids("<x><y>", json::object(), nullptr, {{"<y>", 6}, {"<x>", 7}}), (Ids{7, 6}));
  EXPECT_EQ(ids("<y>", json::object(), {{"additional_special_tokens", {"<y>"}}}), Ids{6});
  EXPECT_EQ(ids("<y>", {{"added_tokens_decoder", json::object()}}, {{"additional_special_tokens", {"<y>"}}}),
            (Ids{0, 0, 0}))
      << "special_tokens_map.json counts where there is no added_tokens_decoder";
  EXPECT_EQ(ids("b", json::object(), {{"eos_token", "a"}}), Ids{3});
  EXPECT_EQ(open(few_letters())->document_end(), 2) << "special_tokens_map.json goes first";
}

TEST_F(HuggingFaceTokenizer, WarnsOfNamedTokensThatItLacksAndOfMarksThatDisagree) {
  write_file(dir_ / "tokenizer_config.json",
             R"({"eos_token": "</s>", "pad_token": "<p>", "bos_token": "<v>", "add_bos_token": true})");
  const auto tokenizer = open(few_letters());
  EXPECT_EQ(tokenizer->vocab_size(), 6);
  EXPECT_EQ(tokenizer->bos_token(), 5);
  EXPECT_EQ(tokenizer->document_begin(), Ids{}) << "as transformers 5";
  ASSERT_EQ(tokenizer->warnings().size(), 2U);
  expect_parts(tokenizer->warnings()[0], {"lacks the token \"<p>\""});
  expect_parts(tokenizer->warnings()[1], {"add_bos_token = true", "puts no <v>", "transformers 4"});
}

TEST_F(HuggingFaceTokenizer, RefusesIdsOfAddedTokensThatThePackageWouldNotGive) {
  write_file(dir_ / "tokenizer_config.json", R"({"eos_token": "</s>"})");
  const auto message = [&](const json& added) { return refusal(few_letters(added)); };
  expect_parts(message({{{"id", 15}, {"content", "<x>"}}}), {"added_tokens gives \"<x>\" the id 15", "give 6"});
  expect_parts(message({{{"id", 2}, {"content", "<x>"}}}), {"\"<x>\" the id 2"});
  expect_parts(message({{{"id", 6}, {"content", "<x>"}}, {{"id", 6}, {"content", "<y>"}}}), {"\"<y>\" the id 6"});
  expect_parts(message({{{"id", 3}, {"content", "a"}}}), {"which model.vocab has as 2"});
}

/// As tokenizers 0.23 does: all tokens are found before white space is stripped.
TEST_F(HuggingFaceTokenizer, FindsAddedTokensBeforeItStripsWhiteSpace) {
  write_file(dir_ / "tokenizer_config.json", R"({"eos_token": "</s>"})");
  const auto tokenizer = open(few_letters({{{"id", 6}, {"content", "<a>"}, {"rstrip", true}},
                                           {{"id", 7}, {"content", "  "}},
                                           {{"id", 8}, {"content", "\t"}, {"rstrip", true}}}));
  EXPECT_EQ(tokenizer->encode("<a>  b"), (Ids{6, 7, 3}));
  EXPECT_EQ(tokenizer->encode("\t\tb"), (Ids{8, 8, 3}));
  EXPECT_EQ(tokenizer->encode("b  <a>    b"), (Ids{3, 7, 6, 7, 7, 3}));
}

TEST_F(HuggingFaceTokenizer, PutsNoBlankWhereTheBeginningOfTheTextWasRemoved) {
  write_file(dir_ / "tokenizer_config.json", R"({"eos_token": "</s>"})");
  json file = sentencepiece_like();
  file["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}, {"split", false}};
  file["normalizer"] = {{"type", "Strip"}};
  EXPECT_EQ(open(file)->encode("a"), Ids{262});
  EXPECT_EQ(open(file)->encode(" a"), Ids{260});
  file["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", "b"}}}, {"content", ""}};
  EXPECT_EQ(open(file)->encode("ba"), Ids{260});
  EXPECT_EQ(open(file)->encode("ab"), Ids{262});
}

TEST_F(HuggingFaceTokenizer, FallsBackToBytesOfTheCharactersForBytes) {
  json file = byte_level();
  for (int byte = 0; byte < 256; ++byte)
    if (byte != 'a') file["model"]["vocab"].erase(hf::utf8(hf::byte_character(static_cast<unsigned char>(byte))));
  file["model"]["vocab"] = {{"a", 0}, {"<0xC4>", 1}, {"<0xA0>", 2}};
  file["model"]["merges"] = json::array();
  file["model"]["byte_fallback"] = true;
  file["added_tokens"][0]["id"] = 3;
  EXPECT_EQ(open(file)->encode("a a"), (Ids{0, 1, 2, 0})) << "Ġ is C4 A0";
}

TEST_F(HuggingFaceTokenizer, NamesFilesThatAreMissingOrNoJson) {
  write_file(dir_ / "tokenizer.json", "{\"model\": ");
  const auto message = [&](const std::string& name) {
    return error_of(ExitCode::data, [&] { (void)make_tokenizer("hf:" + (dir_ / name)); });
  };
  expect_parts(message("tokenizer.json"), {"is not a JSON object"});
  std::string deep = R"({"pre_tokenizer": )", end;
  for (int i = 0; i < 100'000; ++i) {
    deep += R"({"type": "Sequence", "pretokenizers": [)";
    end += "]}";
  }
  write_file(dir_ / "tokenizer.json", deep + R"({"type": "ByteLevel"})" + end + "}");
  expect_parts(message("tokenizer.json"), {"is not a JSON object", "or is nested too deep"});
  expect_parts(message("tokeniser.json"), {"does not exist", "tokenizer.json"});
}

}  // namespace
}  // namespace trireme::tokenizer::huggingface_test

// Fault, data: a tokenizer's files disagree about BOS or EOS, or list unknown tokens -> as transformers 5, with a
//   warning where 4 differs; else exit code 3
// Fault, data: added tokens with gaps or an id twice -> exit code 3 with token and both ids
// Fault, files: deeply nested JSON -> refused, or the depth left out; no stack overflow
