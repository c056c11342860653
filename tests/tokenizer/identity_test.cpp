// SPDX-License-Identifier: Apache-2.0
#include "trireme/tokenizer/identity.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "support/temporary_directory.hpp"
#include "trireme/base/build_info.hpp"
#include "trireme/base/sha256.hpp"
#include "trireme/tokenizer/files.hpp"
#include "trireme/tokenizer/library.hpp"

namespace trireme::tokenizer::identity_test {
namespace {

using trireme::test::TemporaryDirectory;

/// A tokenizer of letters whose JSON is written with `blank` after each comma.
std::string write_letters(const TemporaryDirectory& dir, const std::string& name, const std::string& letters,
                          const std::string& blank = "", const std::string& normalizer = "null") {
  std::string vocabulary = R"("<e>":0)";
  int id = 1;
  for (const char letter : letters)
    vocabulary += "," + blank + "\"" + std::string(1, letter) + "\":" + std::to_string(id++);
  std::filesystem::create_directory(dir / name);
  std::ofstream(dir / (name + "/tokenizer.json"))
      << R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":)" << normalizer
      << R"(,"pre_tokenizer":null,"post_processor":null,"decoder":null,"model":{"type":"BPE","unk_token":"<e>","vocab":{)"
      << vocabulary << R"(},"merges":[]}})";
  std::ofstream(dir / (name + "/tokenizer_config.json")) << R"({"eos_token": "<e>"})";
  return "hf:" + (dir / name);
}

std::string fingerprint_of(const std::string& spec) { return vocabulary_fingerprint(*make_tokenizer(spec)); }

TEST(VocabularyFingerprint, IsThatOfTheIdsAndNotOfTheFile) {
  const TemporaryDirectory dir;
  const std::string one = fingerprint_of(write_letters(dir, "a", "abc"));
  EXPECT_EQ(one, fingerprint_of(write_letters(dir, "b", "abc", "  ")));
  EXPECT_EQ(one.size(), 64);
}

TEST(VocabularyFingerprint, ChangesWithAPieceItsIdAndWithHowTextIsEncoded) {
  const TemporaryDirectory dir;
  const std::string one = fingerprint_of(write_letters(dir, "a", "abt"));
  EXPECT_NE(one, fingerprint_of(write_letters(dir, "b", "abd")));
  EXPECT_NE(one, fingerprint_of(write_letters(dir, "c", "bat")));
  EXPECT_NE(one, fingerprint_of(write_letters(dir, "d", "abt", "", R"({"type":"Lowercase"})")));
  EXPECT_NE(one, fingerprint_of("bytes"));
}

/// The definition of the sidecar, of bytes: each piece after its length, then the ids of the fixed text.
TEST(VocabularyFingerprint, BeginsWithThePiecesBehindTheirLengths) {
  const auto bytes = make_tokenizer("bytes");
  EXPECT_EQ(bytes->piece('a'), "a");
  EXPECT_EQ(bytes->piece(256), "");
  EXPECT_EQ(identity_of("bytes", *bytes).spec, "bytes");
  EXPECT_EQ(identity_of("bytes", *bytes).library.substr(0, 8), "trireme ");
}

TEST(VocabularyFingerprint, DoesNotChangeWithVersionsOfTheProgram) {
  EXPECT_EQ(fingerprint_of("bytes"), "1144dca2b7a761bb71b406d90bfc5231ff43b9531c599cb8f52512e2dcd687f8");
}

TEST(Difference, OfTwoTokenizersIsInTheIdsOfText) {
  const TemporaryDirectory dir;
  const auto differs = [&](const std::string& known, const std::string& other) {
    return difference(known, *make_tokenizer(known), other, *make_tokenizer(other));
  };
  const std::string one = write_letters(dir, "a", "abt");
  EXPECT_EQ(differs(one, write_letters(dir, "b", "abt", "  ")), "");
  EXPECT_EQ(differs(one, "bytes"), "has 257 ids instead of 4");
  EXPECT_EQ(differs(one, write_letters(dir, "c", "bat")), "encodes text to other ids");
  EXPECT_EQ(differs(one, write_letters(dir, "d", "abQ")), "encodes text to other ids");
  EXPECT_EQ(differs(write_letters(dir, "e", "QW"), write_letters(dir, "f", "WQ")), "has other tokens");
  const std::string other_end = write_letters(dir, "g", "abt");
  std::ofstream(dir / "g/tokenizer_config.json") << R"({"eos_token": "a"})";
  EXPECT_EQ(differs(one, other_end), "ends documents with token 1 instead of 0");
  const std::string replaces = R"({"type":"Replace","pattern":{"String":"\u0004"},"content":"a"})";
  EXPECT_EQ(differs(one, write_letters(dir, "h", "abt", "", replaces)), "has other merges, scores or rules of text");
  // Bytes and the tokenizer.json that an export has of them.
  std::filesystem::create_directory(dir / "bytes");
  for (const auto& [name, text] : export_files("bytes")) std::ofstream(dir / ("bytes/" + name)) << text;
  EXPECT_EQ(differs("bytes", "hf:" + (dir / "bytes")), "");
}

TEST(Libraries, OtherVersionsOfWhatComputesIdsAreNamed) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(other_versions("trireme 0.1.0, sentencepiece 0.1.97", "trireme 0.2.0, sentencepiece 0.2.3"),
            Texts{"sentencepiece 0.1.97, here 0.2.3"});
  EXPECT_EQ(other_versions("trireme 0.1.0, pcre2 10.42, utf8proc 2.8.0", "trireme 0.2.0, pcre2 10.42, utf8proc 2.9.0"),
            Texts{"utf8proc 2.8.0, here 2.9.0"});
  EXPECT_EQ(other_versions("trireme 0.1.0, sentencepiece 0.2.0", "trireme 0.1.0, pcre2 10.42"), Texts{});
  EXPECT_EQ(other_versions("", library_of("hf:x")), Texts{});
  const auto saved = build_info().libraries;
  for (const char* name : {"SentencePiece", "PCRE2", "utf8proc"})
    EXPECT_TRUE(std::ranges::any_of(saved, [&](const LibraryVersion& library) { return library.name == name; }))
        << name << " is not among the versions of a checkpoint";
}

}  // namespace
}  // namespace trireme::tokenizer::identity_test
