// SPDX-License-Identifier: Apache-2.0
// Responses alone count: from JSON lines to masks, from masks to targets.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>

#include "data/files.hpp"
#include "data/text/conversation.hpp"
#include "trireme/data/batch_reader.hpp"
#include "trireme/data/token_file.hpp"
#include "trireme/data/tokenize.hpp"

namespace trireme::data::loss_mask_test {
namespace {

using test::error_of;
using test::TemporaryDirectory;
using testing::HasSubstr;

constexpr const char* answers =
    "{\"prompt\": \"ab\", \"response\": \"cd\"}\n"
    "{\"prompt\": \"\", \"response\": \"e\"}\n"
    "{\"prompt\": \"f\", \"response\": \"\"}\n";

TokenizeOptions answers_of() {
  TokenizeOptions options;
  options.field = "prompt";
  options.response = "response";
  return options;
}

/// The mask of the token file at `path`, as text of 0 and 1.
std::string mask_of(const std::string& path) {
  std::string text;
  for (const char byte : test::file_bytes(mask_path(path))) text += static_cast<char>('0' + byte);
  return text;
}

/// A tokenizer.json: BPE over letters that joins "a" and "b", with ChatML's marks.
std::string write_chat_tokenizer(const TemporaryDirectory& dir) {
  std::filesystem::create_directory(dir / "chat");
  test::write_file(dir / "chat/tokenizer.json", R"({
    "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null,
    "post_processor": null, "decoder": null,
    "added_tokens": [
      {"id": 12, "content": "<|im_start|>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
      {"id": 13, "content": "<|im_end|>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
    "model": {"type": "BPE", "dropout": null, "unk_token": "?", "continuing_subword_prefix": null,
              "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
              "vocab": {"?": 0, "a": 1, "b": 2, "s": 3, "i": 4, "t": 5, "n": 6, "u": 7, "e": 8, "r": 9, "\n": 10, "ab": 11},
              "merges": ["a b"]}})");
  test::write_file(dir / "chat/tokenizer_config.json", R"({"eos_token": "<|im_end|>"})");
  return "hf:" + (dir / "chat");
}

TEST(LossMask, CountsTheTokensOfResponsesAndTheirEnd) {
  const TemporaryDirectory dir;
  test::write_file(dir / "a.jsonl", answers);
  const TokenizeCounts counts =
      tokenize_files(*tokenizer::make_tokenizer("bytes"), {dir / "a.jsonl"}, dir / "out.bin", answers_of());
  EXPECT_EQ(counts.documents, 2);
  EXPECT_EQ(counts.empty_documents, 1);
  EXPECT_EQ(counts.counted_tokens, 5);
  EXPECT_EQ(test::file_bytes(dir / "out.bin"),
            test::stored<std::uint16_t>(std::vector<std::int32_t>{'a', 'b', 'c', 'd', 256, 'e', 256}));
  EXPECT_EQ(mask_of(dir / "out.bin"), "0011111");
}

TEST(LossMask, IsWrittenForMegatronAndValidation) {
  const TemporaryDirectory dir;
  std::string lines;
  for (int i = 0; i < 40; ++i) lines += "{\"prompt\": \"ab\", \"response\": \"c\"}\n";
  test::write_file(dir / "a.jsonl", lines);
  TokenizeOptions options = answers_of();
  options.validation = 0.2;
  options.threads = 3;
  const TokenizeCounts counts =
      tokenize_files(*tokenizer::make_tokenizer("bytes"), {dir / "a.jsonl"}, dir / "out.idx", options);
  for (const std::string& path : {counts.tokens_path, counts.validation_path}) {
    const TokenFile file(path, config::TokenFormat::automatic, 257);
    ASSERT_TRUE(file.masked());
    std::vector<std::uint8_t> mask(static_cast<std::size_t>(file.tokens()));
    file.read_mask(0, mask);
    for (std::size_t i = 0; i < mask.size(); ++i) EXPECT_EQ(mask[i], i % 4 >= 2 ? 1 : 0);
  }
}

TEST(LossMask, ATokenAcrossTheBorderBelongsToTheResponse) {
  const TemporaryDirectory dir;
  test::write_file(dir / "a.jsonl", "{\"prompt\": \"sa\", \"response\": \"bt\"}\n");
  (void)tokenize_files(*tokenizer::make_tokenizer(write_chat_tokenizer(dir)), {dir / "a.jsonl"}, dir / "out.bin",
                       answers_of());
  EXPECT_EQ(test::file_bytes(dir / "out.bin"), test::stored<std::uint16_t>(std::vector<std::int32_t>{3, 11, 5, 13}));
  EXPECT_EQ(mask_of(dir / "out.bin"), "0111");
}

TEST(LossMask, CountsTheAssistantsMessages) {
  const TemporaryDirectory dir;
  test::write_file(dir / "a.jsonl",
                   "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": "
                   "\"ab\"}, {\"role\": \"user\", \"content\": \"b\"}]}\n");
  TokenizeOptions options;
  options.field = "messages";
  options.chat = "chatml";
  (void)tokenize_files(*tokenizer::make_tokenizer(write_chat_tokenizer(dir)), {dir / "a.jsonl"}, dir / "out.bin",
                       options);
  // <|im_start|> u s e r \n a <|im_end|> \n, then "assistant" \n ab <|im_end|> \n, then the user's b, which ends it.
  EXPECT_EQ(test::file_bytes(dir / "out.bin"),
            test::stored<std::uint16_t>(std::vector<std::int32_t>{12, 7, 3, 8, 9, 10, 1, 13, 10,                     //
                                                                  12, 1, 3, 3, 4, 3,  5, 1,  6,  5, 10, 11, 13, 10,  //
                                                                  12, 7, 3, 8, 9, 10, 2, 13, 10}));
  EXPECT_EQ(mask_of(dir / "out.bin"), std::string(9, '0') + std::string(11, '0') + "110" + std::string(9, '0'));
}

/// Tokenizes a chat of one line with `write_chat_tokenizer`, whose end of a document is <|im_end|>; the ids.
std::vector<std::int32_t> ids_of_chat(const TemporaryDirectory& dir, const std::string& line, TokenizeOptions options) {
  test::write_file(dir / "a.jsonl", line + "\n");
  const auto tokenizer = tokenizer::make_tokenizer(write_chat_tokenizer(dir));
  (void)tokenize_files(*tokenizer, {dir / "a.jsonl"}, dir / "out.bin", options);
  const TokenFile file(dir / "out.bin", config::TokenFormat::automatic, tokenizer->vocab_size());
  std::vector<std::int32_t> ids(static_cast<std::size_t>(file.tokens()));
  file.read(0, ids);
  std::filesystem::remove_all(dir / "chat");
  return ids;
}

TEST(LossMask, ADocumentThatEndsItselfGetsNoSecondEnd) {
  const TemporaryDirectory dir;
  const auto ends = [&](const std::string& response) {
    const auto ids = ids_of_chat(dir, "{\"prompt\": \"s\", \"response\": \"" + response + "\"}", answers_of());
    return std::vector(ids.begin() + 1, ids.end());
  };
  using Ids = std::vector<std::int32_t>;
  EXPECT_EQ(ends("t"), (Ids{5, 13}));
  EXPECT_EQ(ends("t<|im_end|>"), (Ids{5, 13}));
  EXPECT_EQ(ends("t<|im_end|>\\n"), (Ids{5, 13, 10}));
  EXPECT_EQ(mask_of(dir / "out.bin"), "0111");
  EXPECT_EQ(ends("<|im_end|>t"), (Ids{13, 5, 13}));
  TokenizeOptions text;
  text.field = "t";
  EXPECT_EQ(ids_of_chat(dir, R"({"t": "ab<|im_end|>\n"})", text), (Ids{11, 13, 10}));
}

TEST(LossMask, RefusesWhatAChatFormatWouldDrop) {
  const TemporaryDirectory dir;
  TokenizeOptions options;
  options.field = "messages";
  options.chat = "chatml";
  const auto tokenizer = tokenizer::make_tokenizer(write_chat_tokenizer(dir));
  const auto refusal = [&](const std::string& line) {
    test::write_file(dir / "a.jsonl", line + "\n");
    return error_of(ExitCode::data,
                    [&] { (void)tokenize_files(*tokenizer, {dir / "a.jsonl"}, dir / "out.bin", options); });
  };
  const auto of_message = [&](const std::string& message) {
    return refusal(R"({"messages": [{"role": "user", "content": "a"}, )" + message + "]}");
  };
  for (const auto& [message, said] :
       {std::pair{R"({"role": "assistant", "content": "", "tool_calls": [{"id": 1}]})", "\"tool_calls\""},
        std::pair{R"({"role": "assistant", "content": "b", "reasoning_content": "t"})", "\"reasoning_content\""},
        std::pair{R"({"role": "tool", "content": "b"})", "the role \"tool\""},
        std::pair{R"({"role": "gpt", "content": "b"})", "gpt or model to assistant"},
        std::pair{R"({"role": "Assistant", "content": "b"})", "the role \"Assistant\""},
        std::pair{R"({"role": "assistant", "content": "b", "weight": 0.5})", "it takes 0 and 1"},
        std::pair{R"({"role": "user", "content": "b", "train": true})", "of role user is to be trained on"}})
    EXPECT_THAT(of_message(message), testing::AllOf(HasSubstr("a.jsonl, line 1: "), HasSubstr(said)));
  EXPECT_THAT(refusal(R"({"messages": [{"role": "assistant", "content": "b"}], "tools": [{"type": "function"}]})"),
              HasSubstr("no place for \"tools\""));
  EXPECT_THAT(of_message(R"({"role": "assistant", "content": "b", "weight": 0})"), HasSubstr("no token counts"));
  EXPECT_THAT(of_message(R"({"role": "assistant", "content": "b", "train": false})"), HasSubstr("no token counts"));
  EXPECT_THAT(refusal(R"({"messages": [{"role": "user", "content": "b"}]})"), HasSubstr("no token counts"));
  test::write_file(
      dir / "a.jsonl",
      R"({"tools": [], "messages": [{"role": "assistant", "content": "b", "tool_calls": null, "weight": 1}]})");
  EXPECT_EQ(tokenize_files(*tokenizer, {dir / "a.jsonl"}, dir / "out.bin", options).counted_tokens, 2);
}

TEST(LossMask, LinesThatAreLeftOutAreCountedAndListed) {
  const TemporaryDirectory dir;
  TokenizeOptions options = answers_of();
  options.skip_bad = 4;
  options.threads = 2;
  test::write_file(dir / "a.jsonl",
                   "{\"prompt\": \"a\", \"response\": \"b\"}\noops\n{\"prompt\": \"a\"}\n{\"prompt\": \"a\", "
                   "\"response\": \"x\ty\"}\n[]\n{\"prompt\": \"c\", \"response\": \"d\"}\n");
  const auto tokenizer = tokenizer::make_tokenizer("bytes");
  const test::Warnings warned;
  const TokenizeCounts counts = tokenize_files(*tokenizer, {dir / "a.jsonl"}, dir / "out.bin", options);
  EXPECT_EQ(counts.bad_lines, 4);
  EXPECT_EQ(counts.documents, 2);
  ASSERT_EQ(warned.lines.size(), 1);
  EXPECT_THAT(warned.lines[0],
              testing::AllOf(HasSubstr("4 lines cannot be read and are left out"),
                             HasSubstr("line 2: it is not a JSON"), HasSubstr("line 3: there is no field \"response\""),
                             HasSubstr("line 4: it is a JSON object with a mistake at byte 31: invalid string: control "
                                       "character U+0009 (HT) must be escaped"),
                             testing::Not(HasSubstr("line 5"))));
  EXPECT_THAT(test::file_bytes(dir / "out.bin.meta"), HasSubstr("\"skipped_lines\": 4"));
  options.skip_bad = 3;
  EXPECT_THAT(
      error_of(ExitCode::data, [&] { (void)tokenize_files(*tokenizer, {dir / "a.jsonl"}, dir / "out.bin", options); }),
      testing::AllOf(HasSubstr("line 5"), HasSubstr("one more than --skip-bad 3")));
  options.skip_bad = 0;
  EXPECT_THAT(
      error_of(ExitCode::data, [&] { (void)tokenize_files(*tokenizer, {dir / "a.jsonl"}, dir / "out.bin", options); }),
      testing::AllOf(HasSubstr("line 2"), HasSubstr("--skip-bad N")));
}

/// A conversation whose borders are found from its marks on, against the definition: each prefix encoded alone.
TEST(LossMask, BordersFoundFromMarksOnAreThoseOfWholePrefixes) {
  const TemporaryDirectory dir;
  const auto tokenizer = tokenizer::make_tokenizer(write_chat_tokenizer(dir));
  ASSERT_TRUE(text::check_chat("chatml", *tokenizer));
  std::vector<text::Piece> pieces;
  for (const char* const content : {"ab", "", "a\n", "<|im_start|>ab<|im_end|>", " t ", "sin"}) {
    pieces.push_back({.text = "<|im_start|>user\n", .begins_with_mark = true});
    pieces.push_back({.text = std::string(content) + "<|im_end|>", .counts = content[0] == 'a' || content[0] == '<'});
    pieces.push_back({.text = "\n"});
  }
  text::Lines lines{.text = {}, .field = "m", .chat = "chatml", .marks_divide = false, .name = {}};
  const text::EncodedPart whole = text::encode(*tokenizer, lines, pieces);
  lines.marks_divide = true;
  const text::EncodedPart from_marks = text::encode(*tokenizer, lines, pieces);
  EXPECT_EQ(whole.ids, from_marks.ids);
  EXPECT_EQ(whole.counts, from_marks.counts);
}

/// Counts the bytes that it encodes.
class CountingTokenizer final : public tokenizer::Tokenizer {
 public:
  explicit CountingTokenizer(const std::string& spec) : inner_(tokenizer::make_tokenizer(spec)) {}
  std::vector<std::int32_t> encode(std::string_view text) const override {
    bytes_ += static_cast<std::int64_t>(text.size());
    return inner_->encode(text);
  }
  std::vector<std::int32_t> encode_continuation(std::string_view text) const override { return encode(text); }
  bool encodes_parts() const override { return false; }
  std::string decode(std::span<const std::int32_t> ids) const override { return inner_->decode(ids); }
  std::string piece(std::int32_t id) const override { return inner_->piece(id); }
  std::int64_t vocab_size() const override { return inner_->vocab_size(); }
  std::int32_t document_end() const override { return inner_->document_end(); }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::unique_ptr<tokenizer::Tokenizer> inner_;
  mutable std::atomic<std::int64_t> bytes_ = 0;
};

TEST(LossMask, LongChatsAreEncodedInTimeThatGrowsWithTheirLength) {
  const TemporaryDirectory dir;
  const CountingTokenizer tokenizer(write_chat_tokenizer(dir));
  TokenizeOptions options;
  options.field = "m";
  options.chat = "chatml";
  std::string messages;
  for (int i = 0; i < 300; ++i)
    messages += fmt::format("{}{{\"role\": \"{}\", \"content\": \"{}\"}}", i == 0 ? "" : ", ",
                            i % 2 == 0 ? "user" : "assistant", std::string(200, 'a'));
  const std::string line = "{\"m\": [" + messages + "]}\n";
  test::write_file(dir / "a.jsonl", line);
  (void)tokenize_files(tokenizer, {dir / "a.jsonl"}, dir / "out.bin", options);
  EXPECT_LT(tokenizer.bytes(), 5 * static_cast<std::int64_t>(line.size()));
}

TEST(LossMask, Llama3TrimsContentsAsItsTemplate) {
  const TemporaryDirectory dir;
  TokenizeOptions options;
  options.field = "m";
  options.chat = "llama3";
  std::filesystem::create_directory(dir / "t");
  test::write_file(dir / "t/tokenizer.json", R"({
    "version": "1.0", "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
    "added_tokens": [{"id": 5, "content": "<|start_header_id|>", "special": true}, {"id": 6, "content": "<|end_header_id|>", "special": true},
                     {"id": 7, "content": "<|eot_id|>", "special": true}],
    "model": {"type": "BPE", "unk_token": "?", "vocab": {"?": 0, "a": 1, "b": 2, " ": 3, "\n": 4}, "merges": []}})");
  test::write_file(dir / "t/tokenizer_config.json", R"({"eos_token": "<|eot_id|>"})");
  test::write_file(dir / "a.jsonl", R"({"m": [{"role": "assistant", "content": "\u3000\n a b\t\u00a0 "}]})");
  const auto tokenizer = tokenizer::make_tokenizer("hf:" + (dir / "t"));
  (void)tokenize_files(*tokenizer, {dir / "a.jsonl"}, dir / "out.bin", options);
  EXPECT_EQ(test::file_bytes(dir / "out.bin"),
            test::stored<std::uint16_t>(std::vector<std::int32_t>{5, 1, 0, 0, 0, 0, 0, 1, 0, 0, 6, 4, 4, 1, 3, 2, 7}));
  EXPECT_EQ(mask_of(dir / "out.bin"), "00000000000001111");
}

TEST(LossMask, ChatsNeedTheirMarksAsTokens) {
  const TemporaryDirectory dir;
  test::write_file(dir / "a.jsonl", "{\"messages\": []}\n");
  TokenizeOptions options;
  options.field = "messages";
  options.chat = "chatml";
  EXPECT_THAT(test::error_of(ExitCode::usage,
                             [&] {
                               (void)tokenize_files(*tokenizer::make_tokenizer("bytes"), {dir / "a.jsonl"},
                                                    dir / "out.bin", options);
                             }),
              HasSubstr("\"<|im_start|>\" is not a token of this tokenizer"));
  EXPECT_FALSE(std::filesystem::exists(dir / "out.bin"));
}

TEST(LossMask, MessagesThatAreNoneAreNamed) {
  const TemporaryDirectory dir;
  TokenizeOptions options;
  options.field = "messages";
  options.chat = "chatml";
  const auto tokenizer = tokenizer::make_tokenizer(write_chat_tokenizer(dir));
  for (const auto& [line, said] :
       {std::pair{"{\"messages\": \"a\"}", "line 1: the field \"messages\" is not a list of messages"},
        std::pair{"{\"messages\": [{\"role\": \"user\"}]}", "line 1: a message needs the texts"},
        std::pair{"{\"messages\": [3]}", "line 1: a message needs the texts"}}) {
    test::write_file(dir / "a.jsonl", line);
    EXPECT_THAT(test::error_of(ExitCode::data,
                               [&] { (void)tokenize_files(*tokenizer, {dir / "a.jsonl"}, dir / "out.bin", options); }),
                HasSubstr(said));
  }
}

TEST(LossMask, GoesWithTheTokensThatItBelongsTo) {
  const TemporaryDirectory dir;
  test::write_file(dir / "a.jsonl", answers);
  test::write_file(dir / "b.txt", "plain");
  const auto tokenizer = tokenizer::make_tokenizer("bytes");
  (void)tokenize_files(*tokenizer, {dir / "a.jsonl"}, dir / "out.bin", answers_of());
  EXPECT_TRUE(TokenFile(dir / "out.bin", config::TokenFormat::automatic, 257).masked());
  (void)tokenize_files(*tokenizer, {dir / "b.txt"}, dir / "out.bin");
  EXPECT_FALSE(TokenFile(dir / "out.bin", config::TokenFormat::automatic, 257).masked());
}

TEST(LossMask, OfOtherTokensIsRefused) {
  const TemporaryDirectory dir;
  const std::string path = test::write_tokens(dir / "a", test::counting(0, 10));
  test::write_file(mask_path(path), std::string(9, '\1'));
  EXPECT_THAT(test::error_of(ExitCode::data, [&] { (void)TokenFile(path, config::TokenFormat::automatic, 257); }),
              HasSubstr("a.mask has 9 bytes, but"));
  test::write_file(mask_path(path), std::string(9, '\1') + "x");
  const TokenFile file(path, config::TokenFormat::automatic, 257);
  std::vector<std::uint8_t> mask(10);
  EXPECT_THAT(test::error_of(ExitCode::data, [&] { file.read_mask(0, mask); }), HasSubstr("byte 9 is 120"));
}

TEST(LossMask, ChangesTheFingerprint) {
  const TemporaryDirectory dir;
  const std::string path = test::write_tokens(dir / "a", test::counting(0, 10));
  const auto fingerprint = [&] { return TokenFile(path, config::TokenFormat::automatic, 257).fingerprint(); };
  const std::uint64_t bare = fingerprint();
  test::write_file(mask_path(path), std::string(10, '\1'));
  const std::uint64_t all = fingerprint();
  test::write_file(mask_path(path), std::string(9, '\1') + std::string(1, '\0'));
  EXPECT_NE(bare, all);
  EXPECT_NE(all, fingerprint());
}

/// Targets of all ranks of a run over a masked file of 6 samples and a plain one of 9, against their definition.
TEST(LossMask, SelectsCountedTargetsOnAnyRanks) {
  const TemporaryDirectory dir;
  config::Data data;
  data.seq_len = 4;
  data.shuffle = false;
  data.train = {{.path = test::write_tokens(dir / "a", test::counting(1000, 27))},
                {.path = test::write_tokens(dir / "b", test::counting(2000, 37))}};
  std::string mask;
  for (int i = 0; i < 27; ++i) mask += i % 3 == 0 || i > 20 ? '\0' : '\1';
  test::write_file(mask_path(dir / "a"), mask);
  for (const std::int64_t ranks : {1, 2, 3}) {
    const BatchShape whole{.dp_rank = 0, .dp_size = ranks, .micro = 2, .accumulation = 6 / ranks};
    std::int64_t counted = 0;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      BatchShape shape = whole;
      shape.dp_rank = rank;
      BatchReader reader(data, Split::train, 50000, 1, shape);
      const StepBatch batch = reader.next();
      EXPECT_TRUE(batch.masked);
      counted += batch.counted;
      for (std::int64_t a = 0; a < shape.accumulation; ++a)
        for (std::int64_t i = 0; i < 8; ++i) {
          const std::int64_t sample = a * 2 * ranks + rank * 2 + i / 4;
          const std::int64_t token = sample % 6 * 4 + i % 4 + 1;  // the sample's place in its file
          const bool counts = sample >= 6 || mask[static_cast<std::size_t>(token)] != 0;
          const std::int64_t expected = sample < 6 ? 1000 + token : 2000 + (sample - 6) * 4 + i % 4 + 1;
          EXPECT_EQ(batch.microbatches[static_cast<std::size_t>(a)].targets[static_cast<std::size_t>(i)],
                    counts ? expected : ignored_target);
        }
    }
    const auto in_a = std::count(mask.begin() + 1, mask.begin() + 25, '\1');
    EXPECT_EQ(counted, in_a + 6 * 4) << ranks;
  }
}

}  // namespace
}  // namespace trireme::data::loss_mask_test

// Fault, data: chats with two ends -> one end
// Fault, data: chats with unsupported roles or keys, or without counted token -> refused, by line
