// SPDX-License-Identifier: Apache-2.0
#include "cli/inference/streamed_text.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <random>

#include "support/temporary_directory.hpp"

namespace trireme::cli::streamed_text_test {
namespace {

using Ids = std::vector<std::int32_t>;

struct Shown {
  std::vector<std::string> parts;
  std::string all;
  bool stopped = false;
};

/// Displayed text for "the " and the bytes of `text`.
Shown stream(const std::string& text, std::vector<std::string> stops) {
  const auto tokenizer = tokenizer::make_tokenizer("bytes");
  StreamedText streamed(*tokenizer, tokenizer->encode("the "), std::move(stops));
  Shown shown;
  for (const std::int32_t id : tokenizer->encode(text)) {
    shown.all += shown.parts.emplace_back(streamed.add(id));
    if (streamed.stopped()) break;
  }
  shown.all += streamed.rest();
  shown.stopped = streamed.stopped();
  return shown;
}

TEST(StreamedText, ShowsEveryTokenAsItComes) {
  const Shown shown = stream("ship", {});
  EXPECT_EQ(shown.parts, (std::vector<std::string>{"the s", "h", "i", "p"}));
  EXPECT_FALSE(shown.stopped);
}

TEST(StreamedText, ShowsNothingOfAStop) {
  for (const auto& [text, stops, expected] :
       {std::tuple{std::string("ship. And"), std::vector<std::string>{". "}, "the ship"},
        std::tuple{std::string("ship.and. end"), std::vector<std::string>{". ", "nothing"}, "the ship.and"},
        std::tuple{std::string("aab"), std::vector<std::string>{"ab"}, "the a"},
        std::tuple{std::string("xyz"), std::vector<std::string>{"z", "yz"}, "the x"}}) {
    const Shown shown = stream(text, stops);
    EXPECT_EQ(shown.all, expected);
    EXPECT_TRUE(shown.stopped);
  }
}

TEST(StreamedText, ShowsWhatOnlyBeganLikeAStop) {
  const Shown shown = stream("oars en", {"end"});
  EXPECT_EQ(shown.all, "the oars en");
  EXPECT_FALSE(shown.stopped);
}

TEST(StreamedText, DoesNotLookForStopsInThePrompt) {
  const Shown shown = stream("ship", {"the"});
  EXPECT_EQ(shown.all, "the ship");
  EXPECT_FALSE(shown.stopped);
}

/// Remembers how many tokens were decoded at once.
class CountingTokenizer final : public tokenizer::Tokenizer {
 public:
  explicit CountingTokenizer(const tokenizer::Tokenizer& counted) : counted_(counted) {}
  Ids encode(std::string_view text) const override { return counted_.encode(text); }
  Ids encode_continuation(std::string_view text) const override { return counted_.encode_continuation(text); }
  std::string decode(std::span<const std::int32_t> ids) const override {
    decoded += ids.size();
    return counted_.decode(ids);
  }
  std::string piece(std::int32_t id) const override { return decode(std::span(&id, 1)); }
  std::int64_t vocab_size() const override { return counted_.vocab_size(); }
  std::int32_t document_end() const override { return counted_.document_end(); }

  mutable std::size_t decoded = 0;

 private:
  const tokenizer::Tokenizer& counted_;
};

/// A tokenizer.json over single characters, "▁" for a blank, and bytes where `bytes` names them.
std::unique_ptr<tokenizer::Tokenizer> made(const test::TemporaryDirectory& root, const std::string& decoder,
                                           const std::string& normalizer, bool bytes) {
  std::string vocabulary = R"("<unk>": 0, "</s>": 1, "▁": 2, "a": 3, "b": 4, ".": 5, "▁a": 6, "▁b": 7)";
  if (bytes)
    for (int byte = 0; byte < 256; ++byte) vocabulary += fmt::format(R"(, "<0x{:02X}>": {})", byte, 8 + byte);
  std::ofstream(root / "tokenizer.json") << fmt::format(
      R"({{"added_tokens": [{{"id": 0, "content": "<unk>", "special": true}},
                            {{"id": 1, "content": "</s>", "special": true}}],
          "normalizer": {}, "pre_tokenizer": null, "post_processor": null, "decoder": {},
          "model": {{"type": "BPE", "unk_token": "<unk>", "byte_fallback": {}, "vocab": {{{}}},
                     "merges": ["▁ a", "▁ b"]}}}})",
      normalizer, decoder, bytes, vocabulary);
  std::ofstream(root / "tokenizer_config.json") << R"({"eos_token": "</s>"})";
  return tokenizer::make_tokenizer("hf:" + (root / "tokenizer.json"));
}

constexpr const char* llama_decoder = R"({"type": "Sequence", "decoders": [
  {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
  {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})";
constexpr const char* metaspace_decoder =
    R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true})";
constexpr const char* prepend = R"({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
  {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})";

/// The displayed text is that of all tokens so far, decoded at once, up to the last complete character, and in the end
/// all of it.
void expect_the_text_of(const tokenizer::Tokenizer& tokenizer, const Ids& prompt, const Ids& ids) {
  StreamedText streamed(tokenizer, prompt, {});
  Ids all = prompt;
  std::string shown;
  for (const std::int32_t id : ids) {
    all.push_back(id);
    shown += streamed.add(id);
    const std::string text = tokenizer.decode(all);
    if (text.ends_with("\ufffd")) continue;  // within a character
    ASSERT_EQ(shown, text);
  }
  EXPECT_EQ(shown + streamed.rest(), tokenizer.decode(all));
}

TEST(StreamedText, IsTheTextOfAllTokensWhicheverWayItIsDecoded) {
  const test::TemporaryDirectory root;
  const auto llama = made(root, llama_decoder, prepend, true);
  const auto metaspace = made(root, metaspace_decoder, prepend, false);
  const auto joined = made(root, "null", "null", false);
  std::mt19937 random(1);
  const std::vector<std::string> pieces = {" ", "  ", "a", "b", ".", " a", "é", "你", "😀", "a b"};
  for (int round = 0; round < 300; ++round) {
    Ids plain, fallback = llama->encode(""), prompt = llama->encode(round % 3 == 0 ? "" : "a  b");
    for (int i = 0; i < 12; ++i) {
      plain.push_back(static_cast<std::int32_t>(random() % 8));
      std::string piece = pieces[random() % pieces.size()];
      if (piece.starts_with(' ') || static_cast<unsigned char>(piece.front()) >= 0x80) {
        for (const char byte : piece)
          fallback.push_back(byte == ' ' ? 2 : 8 + static_cast<std::int32_t>(static_cast<unsigned char>(byte)));
      } else {
        fallback.push_back(3 + static_cast<std::int32_t>(random() % 5));
      }
    }
    expect_the_text_of(*llama, prompt, fallback);
    expect_the_text_of(*metaspace, round % 2 == 0 ? Ids{} : Ids{2, 2}, plain);
    expect_the_text_of(*joined, {3}, plain);
    plain.insert(plain.begin(), static_cast<std::size_t>(round % 3), 1);  // marks without text come first
    expect_the_text_of(*metaspace, {1}, plain);
  }
}

TEST(StreamedText, ShowsACharacterOnceItsBytesAreThere) {
  const test::TemporaryDirectory root;
  const auto llama = made(root, llama_decoder, prepend, true);
  StreamedText streamed(*llama, {6}, {});
  const auto byte = [](int value) { return 8 + value; };
  EXPECT_EQ(streamed.add(byte(0xE4)), "a");
  EXPECT_EQ(streamed.add(byte(0xBD)), "");
  EXPECT_EQ(streamed.add(byte(0xA0)), "你");
  EXPECT_EQ(streamed.add(byte(0xFF)), "");
  EXPECT_EQ(streamed.add(6), "\ufffd a") << "what is shown stays, whatever a decoder makes of it later";
  EXPECT_EQ(streamed.add(byte(0xF0)), "");
  EXPECT_EQ(streamed.rest(), "\ufffd") << "half a character in the end";
}

TEST(StreamedText, ATokenCostsTheSameHoweverLongTheTextIs) {
  const test::TemporaryDirectory root;
  const auto llama = made(root, llama_decoder, prepend, true);
  const auto bytes = tokenizer::make_tokenizer("bytes");
  const Ids words = {6, 4, 5, 2, 7}, blanks = {2}, whole = {8 + 0xE4, 8 + 0xBD, 8 + 0xA0, 6}, never = {8 + 0x80},
            unknown = {300};
  const auto decoded = [](const tokenizer::Tokenizer& tokenizer, const Ids& repeated, std::size_t tokens) {
    const CountingTokenizer counting(tokenizer);
    StreamedText streamed(counting, {6}, {"end"});
    for (std::size_t i = 0; i < tokens; ++i) (void)streamed.add(repeated[i % repeated.size()]);
    return counting.decoded;
  };
  for (const Ids& repeated : {words, blanks, whole, never}) EXPECT_LT(decoded(*llama, repeated, 4096), 4096U * 40);
  for (const Ids& repeated : {words, unknown}) EXPECT_LT(decoded(*bytes, repeated, 4096), 4096U * 40);
}

}  // namespace
}  // namespace trireme::cli::streamed_text_test
