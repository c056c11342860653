// SPDX-License-Identifier: Apache-2.0
#include "data/token_writer.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "data/files.hpp"
#include "data/megatron_index.hpp"
#include "support/resource_limit.hpp"
#include "trireme/base/io/atomic_file.hpp"
#include "trireme/data/token_file.hpp"

namespace trireme::data::token_writer_test {
namespace {

using test::counting;
using test::TemporaryDirectory;
using Names = std::vector<std::string>;

void write(const std::string& output, std::int64_t vocab_size,
           const std::vector<std::vector<std::int32_t>>& documents) {
  TokenWriter writer(output, vocab_size);
  for (const auto& document : documents) {
    writer.append(document);
    writer.end_document();
  }
  writer.finish();
}

std::vector<std::int32_t> read(const std::string& path, std::int64_t vocab_size) {
  const TokenFile file(path, config::TokenFormat::automatic, vocab_size);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(file.tokens()));
  file.read(0, tokens);
  return tokens;
}

TEST(TokenWriter, WritesWhatAutoReadsBack) {
  const TemporaryDirectory dir;
  const auto tokens = counting(0, 9000);
  int file = 0;
  for (const std::int64_t vocab_size : {50000, 65499, 65500, 65536, 65537, 128256}) {
    const std::string name = "f" + std::to_string(file++);
    write(dir / (name + ".u"), vocab_size, {tokens});
    EXPECT_EQ(read(dir / (name + ".u"), vocab_size), tokens);
    EXPECT_EQ(std::filesystem::file_size(dir / (name + ".u")), 9000 * (vocab_size <= 65536 ? 2 : 4));
    write(dir / (name + ".idx"), vocab_size, {tokens});
    EXPECT_EQ(read(dir / (name + ".bin"), vocab_size), tokens);
    EXPECT_EQ(std::filesystem::file_size(dir / (name + ".bin")), 9000 * (vocab_size < 65500 ? 2 : 4));
  }
}

TEST(TokenWriter, MegatronHasASequenceForEachDocument) {
  const TemporaryDirectory dir;
  write(dir / "x.idx", 100, {{1, 2, 3}, {}, {4}});
  const std::vector<char> expected = megatron_index_bytes(TokenType::uint16, std::vector<std::int32_t>{3, 0, 1},
                                                          std::vector<std::int64_t>{0, 1, 2, 3});
  EXPECT_EQ(test::file_bytes(dir / "x.idx"), std::string(expected.begin(), expected.end()));
  EXPECT_EQ(test::file_bytes(dir / "x.bin"), test::stored<std::uint16_t>(std::vector<std::int32_t>{1, 2, 3, 4}));
}

TEST(TokenWriter, NothingAppearsBeforeFinishAndNothingStaysWithoutIt) {
  const TemporaryDirectory dir;
  for (const std::string name : {"x.bin", "x.idx"}) {
    TokenWriter writer(dir / name, 50000);
    writer.append(counting(0, 100));
    EXPECT_EQ(dir.names(), (Names{"x.bin.ends.partial", "x.bin.partial"}));
  }
  EXPECT_EQ(dir.names(), Names{});
}

TEST(TokenWriter, AFullDiskIsAWriteErrorThatLeavesTheOldFileAlone) {
  const TemporaryDirectory dir;
  const auto old = counting(7, 10);
  write(dir / "x.idx", 50000, {old});
  for (const rlim_t bytes : {rlim_t{5000}, rlim_t{60}}) {  // fails in the .bin, and in the .idx
    const trireme::test::FileLimit full(bytes);
    const auto tokens = counting(0, bytes == 60 ? 20 : 10000);
    test::expect_parts(test::error_of(ExitCode::write,
                                      [&] {
                                        write(dir / "x.idx", 50000, {tokens, {1}});
                                      }),
                       {"cannot write", "File too large", "ulimit -f"});
  }
  EXPECT_EQ(dir.names(), (Names{"x.bin", "x.bin.ends", "x.bin.meta", "x.idx"}));
  EXPECT_EQ(read(dir / "x.bin", 50000), old);
}

TEST(AtomicFile, IsWrittenByOneAtATimeAndNothingOfAKilledOneIsLeftInIt) {
  const TemporaryDirectory dir;
  const std::string path = dir / "x.bin";
  std::ofstream(path + ".partial") << "of a process that was killed";
  {
    io::AtomicFile first(path);
    test::expect_parts(test::error_of(ExitCode::write, [&] { (void)io::AtomicFile(path); }),
                       {"x.bin", "another process is writing it"});
    first.write(std::string_view("first"));
    first.close();
    test::expect_parts(test::error_of(ExitCode::write, [&] { (void)io::AtomicFile(path); }),
                       {"another process is writing it"});
    first.publish();
  }
  std::string text;
  std::getline(std::ifstream(path), text);
  EXPECT_EQ(text, "first");
  EXPECT_EQ(dir.names(), std::vector<std::string>{"x.bin"});
  test::expect_parts(test::error_of(ExitCode::write, [&] { (void)io::AtomicFile("/dev/null"); }),
                     {"not a regular file"});
}

TEST(TokenWriter, MakesItsDirectory) {
  const TemporaryDirectory dir;
  write(dir / "new/deep/x.bin", 100, {{1, 2, 3}});
  EXPECT_EQ(TokenFile(dir / "new/deep/x.bin", config::TokenFormat::automatic, 100).tokens(), 3);
}

TEST(TokenWriter, NamesADirectoryThatCannotBeMade) {
  const TemporaryDirectory dir;
  std::ofstream(dir / "file") << "text";
  test::expect_parts(test::error_of(ExitCode::write, [&] { TokenWriter(dir / "file/x.bin", 100); }),
                     {"cannot write", "file/x.bin", "Not a directory"});
  test::expect_parts(test::error_of(ExitCode::write, [&] { TokenWriter(dir.path(), 100); }), {"name a file in it"});
}

TEST(TokenWriter, RefusesRawTokensNextToAnIndex) {
  const TemporaryDirectory dir;
  write(dir / "x.idx", 100, {{1, 2, 3}});
  test::expect_parts(test::error_of(ExitCode::data, [&] { TokenWriter(dir / "x.bin", 100); }),
                     {"next to", "x.bin is ", "x.idx", "taken for a Megatron file"});
}

TEST(TokenWriter, RefusesTokensBeyondTheVocabulary) {
  const TemporaryDirectory dir;
  TokenWriter writer(dir / "x", 100);
  EXPECT_THROW(writer.append(std::vector<std::int32_t>{100}), BugError);
  EXPECT_THROW(writer.append(std::vector<std::int32_t>{-1}), BugError);
}

}  // namespace
}  // namespace trireme::data::token_writer_test
