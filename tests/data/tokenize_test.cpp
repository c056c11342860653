// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/tokenize.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <utility>

#include "data/files.hpp"
#include "data/spm_model.hpp"
#include "trireme/base/error.hpp"
#include "trireme/data/token_file.hpp"

namespace trireme::data::tokenize_test {
namespace {

using test::TemporaryDirectory;
using Ids = std::vector<std::int32_t>;
using TokenizeSentencePiece = test::SpmTrainTest;

Ids read(const std::string& path, std::int64_t vocab_size) {
  const TokenFile file(path, config::TokenFormat::automatic, vocab_size);
  Ids tokens(static_cast<std::size_t>(file.tokens()));
  file.read(0, tokens);
  return tokens;
}

TEST(Tokenize, EndsEveryDocument) {
  const TemporaryDirectory dir;
  test::write_file(dir / "a.txt", "ab\n");
  test::write_file(dir / "b.txt", "");
  test::write_file(dir / "c.txt", "c");
  const auto tokenizer = tokenizer::make_tokenizer("bytes");
  const TokenizeCounts counts =
      tokenize_files(*tokenizer, {dir / "a.txt", dir / "b.txt", dir / "c.txt"}, dir / "out.bin");
  EXPECT_EQ(counts.documents, 2);
  EXPECT_EQ(counts.empty_documents, 1);
  EXPECT_EQ(counts.text_bytes, 4);
  EXPECT_EQ(counts.tokens, 6);
  EXPECT_EQ(counts.type, TokenType::uint16);
  EXPECT_EQ(counts.tokens_path, dir / "out.bin");
  EXPECT_EQ(read(dir / "out.bin", 257), (Ids{'a', 'b', '\n', 256, 'c', 256}));
}

TEST(Tokenize, WritesMegatronWhenTheOutputEndsInIdx) {
  const TemporaryDirectory dir;
  test::write_file(dir / "a.txt", "ab\n");
  test::write_file(dir / "c.txt", "c");
  const auto tokenizer = tokenizer::make_tokenizer("bytes");
  const TokenizeCounts counts = tokenize_files(*tokenizer, {dir / "a.txt", dir / "c.txt"}, dir / "out.idx");
  EXPECT_EQ(counts.tokens_path, dir / "out.bin");
  EXPECT_EQ(counts.tokens, 6);
  EXPECT_EQ(TokenFile(dir / "out.bin", config::TokenFormat::automatic, 257).format(), config::TokenFormat::megatron);
  EXPECT_EQ(read(dir / "out.bin", 257), (Ids{'a', 'b', '\n', 256, 'c', 256}));
}

TEST(Tokenize, DrawsTheShareOfDocumentsForValidation) {
  for (const double share : {0.5, 0.3, 0.1, 0.02, 0.005, 0.0001})
    for (const std::int64_t documents : {2, 7, 50, 167, 20'000}) {
      std::int64_t chosen = 0;
      std::set<std::int64_t> distances;
      for (std::int64_t document = 0, last = -1; document < documents; ++document)
        if (is_validation(document, share)) {
          distances.insert(document - std::exchange(last, document));
          ++chosen;
        }
      const auto wanted = static_cast<double>(documents) * share;
      EXPECT_GE(chosen, std::floor(wanted)) << share << " of " << documents;
      EXPECT_LE(chosen, std::ceil(wanted)) << share << " of " << documents;
      EXPECT_TRUE(chosen < 10 || distances.size() > 2) << share << ": at regular places";
    }
}

TEST_F(TokenizeSentencePiece, TheChunkSizeDoesNotChangeTheTokens) {
  const TemporaryDirectory dir;
  std::string text = test::ship_text().substr(0, 6000) +
                     "\n\n  the ship\t\xc3\xa9\xe2\x9a\x93\xf0\x9f\x9a\xa2 of oars\n" + test::ship_text();
  test::write_file(dir / "text", text);
  for (const bool llama_like : {false, true}) {
    const auto tokenizer =
        tokenizer::make_tokenizer("spm:" + (llama_like ? test::train_llama_like(dir) : test::train_unigram(dir)));
    Ids expected = tokenizer->encode(text);
    expected.push_back(tokenizer->document_end());
    for (const std::size_t chunk_bytes : {100, 1000, 4096, 1 << 20}) {
      tokenize_files(*tokenizer, {dir / "text"}, dir / "out", {.chunk_bytes = chunk_bytes});
      ASSERT_EQ(read(dir / "out", tokenizer->vocab_size()), expected)
          << "llama-like " << llama_like << ", chunks of " << chunk_bytes;
    }
  }
}

TEST(Tokenize, CutsTextAtLineEndsThenBlanksThenCharacters) {
  EXPECT_EQ(text_cut("one\ntwo\nthree"), 7);
  EXPECT_EQ(text_cut("\none two"), 4);
  EXPECT_EQ(text_cut("plain"), 5);
  EXPECT_EQ(text_cut("pl\xc3\xa9"), 4);
  EXPECT_EQ(text_cut("pl\xc3"), 2);
  EXPECT_EQ(text_cut("pl\xf0\x9f\x9a"), 2);
  EXPECT_EQ(text_cut("\x9a\x9a\x9a\x9a\x9a"), 5);
  EXPECT_EQ(text_cut(""), 0);
}

TEST(Tokenize, NamesTextFilesThatCannotBeRead) {
  const TemporaryDirectory dir;
  test::write_file(dir / "a.txt", "ab\n");
  const auto tokenizer = tokenizer::make_tokenizer("bytes");
  test::expect_parts(test::error_of(ExitCode::data,
                                    [&] {
                                      tokenize_files(*tokenizer, {dir / "a.txt", dir / "b.txt"}, dir / "out");
                                    }),
                     {"text file", "b.txt does not exist", "a.txt"});
  std::filesystem::create_directory(dir / "empty");
  test::expect_parts(test::error_of(ExitCode::data, [&] { tokenize_files(*tokenizer, {dir / "empty"}, dir / "out"); }),
                     {"holds no files"});
  EXPECT_EQ(dir.names(), (std::vector<std::string>{"a.txt", "empty"}));
}

TEST(Tokenize, RefusesToReplaceItsInputAndToRunWithoutOne) {
  const TemporaryDirectory dir;
  test::write_file(dir / "a.txt", "ab\n");
  const auto tokenizer = tokenizer::make_tokenizer("bytes");
  test::expect_parts(
      test::error_of(ExitCode::usage, [&] { tokenize_files(*tokenizer, {dir / "a.txt"}, dir / "a.txt"); }),
      {"replace its own input", "a.txt"});
  test::expect_parts(test::error_of(ExitCode::usage, [&] { tokenize_files(*tokenizer, {}, dir / "out"); }),
                     {"no text files"});
  EXPECT_EQ(test::file_bytes(dir / "a.txt"), "ab\n");
}

/// Error message of tokenizing one file of these bytes; empty when it succeeds.
std::string refusal_of(const std::string& bytes) {
  const TemporaryDirectory dir;
  test::write_file(dir / "in", bytes);
  try {
    (void)tokenize_files(*tokenizer::make_tokenizer("bytes"), {dir / "in"}, dir / "out.bin");
  } catch (const DataError& error) {
    EXPECT_EQ(dir.names(), std::vector<std::string>{"in"}) << "something is left behind";
    return error.what();
  }
  return "";
}

TEST(Tokenize, RefusesWhatIsNoPlainText) {
  const auto refused = [](const std::string& bytes, const std::string& why) {
    const std::string message = refusal_of(bytes);
    EXPECT_NE(message.find(why), std::string::npos) << message;
  };
  refused("BZh91AY", "compressed by bzip2");
  refused("PAR1...", "Parquet");
  refused("{\"text\": \"one\"}\n{\"text\": \"two\"}\n", "JSON lines");
  refused("{\"text\": \"one\"}", "JSON lines");
  refused("{\n  \"text\": \"one\",\n  \"n\": [1, true, null]\n}\n", "is JSON");
  refused(" [\n  {\"text\": \"one\"},\n  {\"text\": \"two\"}\n]\n", "is JSON");
  refused("[\"one\", \"two\"]", "is JSON");
  std::string list = "[\n";
  while (list.size() < 3 * tokenize_chunk_bytes) list += "  {\"text\": \"caf\xc3\xa9 \\u00e9\"},\n";
  refused(list + "  {}\n]\n", "is JSON");
  refused(std::string("text\0text", 9), "zero byte at 4");
  std::string latin;
  for (int i = 0; i < 100; ++i) latin += "caf\xe9 au lait ";
  refused(latin, "100 characters of its first 1300 bytes are invalid, the first at byte 3");
}

TEST(Tokenize, RefusesAFileThatIsNoTextAsAWholeWhateverLinesMayBeLeftOut) {
  const TemporaryDirectory dir;
  for (const std::string begin : {"BZh91AY", "\xfd\x37zXZ", "PAR1", "\xff\xfe{"}) {
    test::write_file(dir / "in", begin + std::string("\0\nab\ncd\n", 8));
    for (const std::int64_t skipped : {0, 9}) {
      const TokenizeOptions options{.field = "text", .skip_bad = skipped};
      const std::string message = test::error_of(ExitCode::data, [&] {
        (void)tokenize_files(*tokenizer::make_tokenizer("bytes"), {dir / "in"}, dir / "out.bin", options);
      });
      EXPECT_NE(message.find("not text"), std::string::npos) << message;
      EXPECT_EQ(message.find("--skip-bad"), std::string::npos) << message;
    }
  }
}

TEST(Tokenize, TakesTextWithAFewBrokenCharactersAndOddOnes) {
  std::string text(40'000, 'x');
  for (std::size_t i = 0; i < 20; ++i) text[1000 * i] = '\xff';
  EXPECT_EQ(refusal_of(text), "") << "20 in 40,000";
  EXPECT_EQ(refusal_of("{ a brace, and no JSON }\n"), "");
  EXPECT_EQ(refusal_of("{\"text\": 1}\nand then prose\n"), "");
  EXPECT_EQ(refusal_of("{\n  \"text\": 1\n}\nand then prose\n"), "");
  EXPECT_EQ(refusal_of("[1] Homer, Odyssey\n"), "");
  EXPECT_EQ(refusal_of("[1]\n"), "");
  EXPECT_EQ(refusal_of("[\"one\" is a quote\n"), "");
  EXPECT_EQ(refusal_of("\xef\xbb\xbf"
                       "a mark, \xe2\x9a\x93, \xf0\x9f\x9a\xa2, \xed\x9f\xbf"),
            "");
}

TEST(Tokenize, CountsBrokenCharactersOverTheEdgesOfChunks) {
  const TemporaryDirectory dir;
  std::string text;
  for (int i = 0; i < 40; ++i) text += "\xf0\x9f\x9a\xa2";  // whole ones, cut by every chunk
  test::write_file(dir / "good", text);
  test::write_file(dir / "bad", text + std::string(17, '\xc0'));
  for (const std::size_t chunk : {1, 3, 5, 7}) {
    (void)tokenize_files(*tokenizer::make_tokenizer("bytes"), {dir / "good"}, dir / "out.bin", {.chunk_bytes = chunk});
    EXPECT_THROW((void)tokenize_files(*tokenizer::make_tokenizer("bytes"), {dir / "bad"}, dir / "out.bin",
                                      {.chunk_bytes = chunk}),
                 DataError);
  }
}

}  // namespace
}  // namespace trireme::data::tokenize_test
