// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/token_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>

#include "data/files.hpp"
#include "data/megatron_index.hpp"

namespace trireme::data {
namespace {

using config::TokenFormat;
using test::error_of;
using test::expect_parts;
using test::stored;
using test::TemporaryDirectory;
using test::write_file;

const std::vector<std::int32_t> some_tokens = {0, 1, 300, 40000, 7, 49999, 2};

std::vector<std::int32_t> read_all(const TokenFile& file) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(file.tokens()));
  file.read(0, tokens);
  return tokens;
}

std::string llmc_bytes(std::int32_t magic, std::int32_t version, std::int32_t count, const std::string& tokens) {
  std::string bytes;
  for (const std::int32_t word : {magic, version, count}) test::append_bytes(bytes, word);
  bytes.resize(1024, '\0');
  return bytes + tokens;
}

/// Writes x.bin and x.idx of `type`, one document of each length.
void write_megatron(const std::string& prefix, TokenType type, const std::string& bin,
                    const std::vector<std::int32_t>& lengths) {
  std::vector<std::int64_t> starts;
  for (std::size_t i = 0; i <= lengths.size(); ++i) starts.push_back(static_cast<std::int64_t>(i));
  const std::vector<char> index = megatron_index_bytes(type, lengths, starts);
  write_file(prefix + ".bin", bin);
  write_file(prefix + ".idx", {index.data(), index.size()});
}

TEST(TokenFile, ReadsRawUint16AndUint32) {
  const TemporaryDirectory dir;
  write_file(dir / "a", stored<std::uint16_t>(some_tokens));
  write_file(dir / "b", stored<std::uint32_t>(some_tokens));
  EXPECT_EQ(read_all(TokenFile(dir / "a", TokenFormat::uint16, 50000)), some_tokens);
  EXPECT_EQ(read_all(TokenFile(dir / "b", TokenFormat::uint32, 50000)), some_tokens);
}

TEST(TokenFile, ReadsFromAnyPosition) {
  const TemporaryDirectory dir;
  write_file(dir / "a", stored<std::uint16_t>(some_tokens));
  const TokenFile file(dir / "a", TokenFormat::uint16, 50000);
  std::array<std::int32_t, 3> out{};
  file.read(2, out);
  EXPECT_EQ(out, (std::array<std::int32_t, 3>{300, 40000, 7}));
  EXPECT_THROW(file.read(5, out), BugError);
}

TEST(TokenFile, AutoTakesTheWidthFromTheVocabulary) {
  const TemporaryDirectory dir;
  write_file(dir / "a", stored<std::uint32_t>(some_tokens));
  EXPECT_EQ(TokenFile(dir / "a", TokenFormat::automatic, 65536).format(), TokenFormat::uint16);
  EXPECT_EQ(TokenFile(dir / "a", TokenFormat::automatic, 65537).format(), TokenFormat::uint32);
  EXPECT_EQ(read_all(TokenFile(dir / "a", TokenFormat::automatic, 128256)), some_tokens);
}

TEST(TokenFile, AutoRecognizesLlmcByItsMagic) {
  const TemporaryDirectory dir;
  write_file(dir / "gpt2.bin", llmc_bytes(20240520, 1, 7, stored<std::uint16_t>(some_tokens)));
  write_file(dir / "llama3.bin", llmc_bytes(20240801, 7, 7, stored<std::uint32_t>(some_tokens)));
  for (const TokenFormat format : {TokenFormat::automatic, TokenFormat::llmc}) {
    const TokenFile gpt2(dir / "gpt2.bin", format, 128256);
    EXPECT_EQ(gpt2.format(), TokenFormat::llmc);
    EXPECT_EQ(read_all(gpt2), some_tokens);
    EXPECT_EQ(read_all(TokenFile(dir / "llama3.bin", format, 50257)), some_tokens);
  }
}

TEST(TokenFile, ReadsMegatronInEveryIntegerType) {
  const TemporaryDirectory dir;
  const std::vector<std::int32_t> small = {0, 1, 100, 127, 5};
  write_megatron(dir / "u8", TokenType::uint8, stored<std::uint8_t>(small), {2, 3});
  write_megatron(dir / "i8", TokenType::int8, stored<std::int8_t>(small), {2, 3});
  write_megatron(dir / "i16", TokenType::int16, stored<std::int16_t>(small), {5});
  write_megatron(dir / "u16", TokenType::uint16, stored<std::uint16_t>(small), {1, 4});
  write_megatron(dir / "i32", TokenType::int32, stored<std::int32_t>(small), {1, 1, 3});
  write_megatron(dir / "i64", TokenType::int64, stored<std::int64_t>(small), {4, 1});
  for (const std::string name : {"u8", "i8", "i16", "u16", "i32", "i64"}) {
    EXPECT_EQ(read_all(TokenFile(dir / (name + ".bin"), TokenFormat::automatic, 128)), small) << name;
  }
}

TEST(TokenFile, MegatronIsNamedByItsBinItsIdxOrTheirPrefix) {
  const TemporaryDirectory dir;
  write_megatron(dir / "x", TokenType::uint16, stored<std::uint16_t>(some_tokens), {7});
  for (const std::string name : {"x", "x.bin", "x.idx"}) {
    for (const TokenFormat format : {TokenFormat::automatic, TokenFormat::megatron}) {
      const TokenFile file(dir / name, format, 50000);
      EXPECT_EQ(file.path(), dir / "x.bin");
      EXPECT_EQ(file.format(), TokenFormat::megatron);
      EXPECT_EQ(read_all(file), some_tokens);
    }
  }
}

TEST(TokenFile, IsOpenedWhereAnotherRankFoundIt) {
  const TemporaryDirectory dir;
  write_megatron(dir / "x", TokenType::uint16, stored<std::uint16_t>(some_tokens), {7});
  write_file(dir / "x.bin.mask", std::string(7, '\1'));
  const TokenPlace found = find_token_file(dir / "x", TokenFormat::automatic);
  EXPECT_EQ(found.path, dir / "x.bin");
  EXPECT_TRUE(found.indexed && found.masked);
  EXPECT_TRUE(TokenFile(found, TokenFormat::automatic, 50000).masked());
  // Nothing is looked for again: what was not found is not there.
  const TokenFile bare(TokenPlace{.path = dir / "x.bin"}, TokenFormat::automatic, 50000);
  EXPECT_EQ(bare.format(), TokenFormat::uint16);
  EXPECT_FALSE(bare.masked());
  EXPECT_FALSE(find_token_file(dir / "x.bin", TokenFormat::uint16).indexed) << "the format is no pair's";
}

TEST(TokenFile, AcceptsTheModesOfAMultimodalIndex) {
  const TemporaryDirectory dir;
  write_megatron(dir / "x", TokenType::uint16, stored<std::uint16_t>(some_tokens), {3, 4});
  write_file(dir / "x.idx", test::file_bytes(dir / "x.idx") + std::string(2, '\0'));
  EXPECT_EQ(TokenFile(dir / "x", TokenFormat::automatic, 50000).tokens(), 7);
}

TEST(TokenFile, WarnsOfEmptyMegatronSequences) {
  const TemporaryDirectory dir;
  write_megatron(dir / "x", TokenType::uint16, stored<std::uint16_t>(some_tokens), {3, 0, 4, 0});
  const test::Warnings warnings;
  EXPECT_EQ(read_all(TokenFile(dir / "x.bin", TokenFormat::automatic, 50000)), some_tokens);
  ASSERT_EQ(warnings.lines.size(), 1);
  expect_parts(warnings.lines[0], {"x.idx", "2 of 4 sequences are empty"});
}

TEST(TokenFile, AMissingFileNamesTheNearestOne) {
  const TemporaryDirectory dir;
  write_file(dir / "tokens.bin", "xx");
  write_file(dir / "notes.txt", "xx");
  const auto open = [](const std::string& path) { return [path] { TokenFile(path, TokenFormat::automatic, 100); }; };
  expect_parts(error_of(ExitCode::data, open(dir / "tokns.bin")),
               {"token file", "tokns.bin does not exist", "nearest file", "tokens.bin"});
  expect_parts(error_of(ExitCode::data, open(dir / "nowhere/t.bin")),
               {"does not exist", "there is no directory", "nowhere"});
  std::filesystem::create_directory(dir / "empty");
  expect_parts(error_of(ExitCode::data, open(dir / "empty/t.bin")), {"does not exist", "holds no files"});
  expect_parts(error_of(ExitCode::data, open(dir / "empty")), {"is a directory", "name the file itself"});
}

TEST(TokenFile, NamesEmptyAndTruncatedRawFiles) {
  const TemporaryDirectory dir;
  write_file(dir / "empty", "");
  write_file(dir / "odd", "abcde");
  expect_parts(error_of(ExitCode::data, [&] { TokenFile(dir / "empty", TokenFormat::automatic, 100); }),
               {"is empty", "trireme tokenize"});
  expect_parts(error_of(ExitCode::data, [&] { TokenFile(dir / "odd", TokenFormat::automatic, 100); }),
               {"odd has 5 bytes", "whole number of uint16 tokens (2 bytes each)", "truncated", "data.format"});
  expect_parts(error_of(ExitCode::data, [&] { TokenFile(dir / "odd", TokenFormat::uint32, 100); }),
               {"uint32 tokens (4 bytes each)"});
}

TEST(TokenFile, NamesFilesOfOtherKinds) {
  const TemporaryDirectory dir;
  write_file(dir / "x.npy", "\x93NUMPY\x01 and so on");
  write_file(dir / "eval.bin", llmc_bytes(20240522, 1, 7, ""));
  expect_parts(error_of(ExitCode::data, [&] { TokenFile(dir / "x.npy", TokenFormat::automatic, 100); }),
               {"NumPy", "tofile()"});
  expect_parts(error_of(ExitCode::data, [&] { TokenFile(dir / "eval.bin", TokenFormat::automatic, 100); }),
               {"evaluation file"});
  const auto message = [&](const std::string& name, std::string_view bytes) {
    write_file(dir / name, bytes);
    return error_of(ExitCode::data, [&] { TokenFile(dir / name, TokenFormat::automatic, 128256); });
  };
  expect_parts(message("web.jsonl", "{\"text\": \"Tr\xc3\xadreme\"}\n"),
               {"holds no tokens: it is JSON lines", "--field text -o", "web.bin"});
  expect_parts(message("book.txt", "The ship has three banks of oars.\n"), {"it is plain text; tokenize it first"});
  expect_parts(message("book.txt.gz", "\x1f\x8b\x08 and so on"), {"it is compressed by gzip"});
}

TEST(TokenFile, TakesTokensThatLookLikeLetters) {
  const TemporaryDirectory dir;
  for (const char* bytes : {"abcdefgh", "Tr\xc3\xadremes rows\x01\x02"}) {
    write_file(dir / "x", bytes);
    EXPECT_NO_THROW((void)TokenFile(dir / "x", TokenFormat::automatic, 50000)) << bytes;
  }
}

TEST(TokenFile, NamesWhatIsWrongWithAnLlmcFile) {
  const TemporaryDirectory dir;
  const auto message = [&](const std::string& bytes) {
    write_file(dir / "x.bin", bytes);
    return error_of(ExitCode::data, [&] { TokenFile(dir / "x.bin", TokenFormat::llmc, 50000); });
  };
  const std::string tokens = stored<std::uint16_t>(some_tokens);
  expect_parts(message(tokens), {"bad magic", "20240520", "20240801", "data.format"});
  expect_parts(message("ab"), {"bad magic"});
  expect_parts(message(llmc_bytes(20240520, 2, 7, tokens)), {"gpt-2 files of version 2", "only of version 1"});
  expect_parts(message(llmc_bytes(20240801, 1, 7, tokens)), {"llama-3 files of version 1", "only of version 7"});
  expect_parts(message(llmc_bytes(20240520, 1, 8, tokens)), {"1038 bytes", "8 tokens", "1040", "truncated"});
  expect_parts(message(llmc_bytes(20240520, 1, 6, tokens)), {"1038 bytes", "6 tokens", "1036"});
  expect_parts(message(llmc_bytes(20240520, 1, -1, tokens)), {"-1 tokens"});
  expect_parts(message(llmc_bytes(20240520, 1, 0, "")), {"holds no tokens"});
}

TEST(TokenFile, NamesAMissingMegatronIndex) {
  const TemporaryDirectory dir;
  write_file(dir / "x.bin", stored<std::uint16_t>(some_tokens));
  expect_parts(error_of(ExitCode::data, [&] { TokenFile(dir / "x.bin", TokenFormat::megatron, 50000); }),
               {"its index", "x.idx is missing", "data.format"});
}

TEST(TokenFile, NamesATokenBeyondTheVocabularyWhenItIsRead) {
  const TemporaryDirectory dir;
  write_file(dir / "x", stored<std::uint16_t>(some_tokens));
  const TokenFile file(dir / "x", TokenFormat::uint16, 32000);
  std::array<std::int32_t, 2> out{};
  file.read(0, out);
  expect_parts(
      error_of(ExitCode::data, [&] { file.read(2, out); }),
      {dir / "x", "token 40000 at position 3", "vocabulary of 32000 (0 to 31999)", "model.vocab_size", "data.format"});
}

TEST(TokenFile, NamesNegativeAndHugeTokens) {
  const TemporaryDirectory dir;
  std::array<std::int32_t, 1> out{};
  write_megatron(dir / "x", TokenType::int32, stored<std::int32_t>(std::vector<std::int32_t>{-5}), {1});
  const TokenFile negative(dir / "x", TokenFormat::automatic, 100);
  expect_parts(error_of(ExitCode::data, [&] { negative.read(0, out); }), {"token -5 at position 0", "megatron, int32"});
  write_file(dir / "y", "\xff\xff\xff\xff");
  const TokenFile huge(dir / "y", TokenFormat::uint32, 100);
  expect_parts(error_of(ExitCode::data, [&] { huge.read(0, out); }), {"token 4294967295 at position 0"});
}

TEST(TokenFile, NamesAFileCutWhileItIsRead) {
  const TemporaryDirectory dir;
  write_file(dir / "x", stored<std::uint16_t>(some_tokens));
  const TokenFile file(dir / "x", TokenFormat::uint16, 50000);
  std::filesystem::resize_file(dir / "x", 6);
  std::array<std::int32_t, 7> out{};
  expect_parts(error_of(ExitCode::data, [&] { file.read(0, out); }), {"ends at byte 6", "truncated or changed"});
}

TEST(TokenFile, ReadsBeyondTwoToThe31Tokens) {
  const TemporaryDirectory dir;
  constexpr std::int64_t tokens = (std::int64_t{1} << 32) + 10;
  {
    const io::Descriptor file(::open((dir / "sparse").c_str(), O_WRONLY | O_CREAT, 0600));
    const std::uint16_t last = 77;
    ASSERT_EQ(::pwrite(file.get(), &last, 2, (tokens - 1) * 2), 2);
  }
  const TokenFile file(dir / "sparse", TokenFormat::automatic, 100);
  ASSERT_EQ(file.tokens(), tokens);
  std::array<std::int32_t, 2> out{};
  file.read(tokens - 2, out);
  EXPECT_EQ(out, (std::array<std::int32_t, 2>{0, 77}));
  EXPECT_NE(file.fingerprint(), 0);
}

TEST(TokenFile, RefusesWhatIsNoRegularFileWithoutWaiting) {
  const TemporaryDirectory dir;
  ASSERT_EQ(::mkfifo((dir / "fifo").c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo((dir / "x.idx").c_str(), 0600), 0);
  test::write_tokens(dir / "x.bin", test::counting(0, 300));
  const auto refused = [](const std::string& path, const std::string& kind) {
    test::expect_parts(test::error_of(ExitCode::data, [&] { (void)TokenFile(path, TokenFormat::automatic, 50000); }),
                       {kind, "regular file"});
  };
  refused(dir / "fifo", "is a FIFO");
  refused(dir / "x.bin", "x.idx is a FIFO");
  refused("/dev/zero", "is a device");
  refused(dir / ".", "is a directory");
}

}  // namespace
}  // namespace trireme::data

// Fault, data: token files change between runs -> up to 4 MiB of each and the whole index are compared: a change of
//   1/128 is seen
