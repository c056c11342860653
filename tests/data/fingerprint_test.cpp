// SPDX-License-Identifier: Apache-2.0
// The fingerprint of a token file: by which a resumed run knows its training data again.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "data/files.hpp"
#include "data/megatron_index.hpp"
#include "trireme/data/token_file.hpp"

namespace trireme::data {
namespace {

using config::TokenFormat;
using test::TemporaryDirectory;

TEST(Fingerprint, DependsOnContentsAndNotOnPaths) {
  const TemporaryDirectory dir;
  const auto fingerprint = [&](const std::string& name, const std::vector<std::int32_t>& tokens) {
    test::write_tokens(dir / name, tokens);
    return TokenFile(dir / name, TokenFormat::uint16, 50000).fingerprint();
  };
  const auto tokens = test::counting(0, 5000);
  auto changed = tokens;
  changed.back() = 1;
  EXPECT_EQ(fingerprint("a", tokens), fingerprint("b", tokens));
  EXPECT_NE(fingerprint("a", tokens), fingerprint("c", changed));
  EXPECT_NE(fingerprint("a", tokens), fingerprint("d", test::counting(0, 4999)));
}

// Worked out by another program: checkpoints without a run id hold such numbers.
TEST(Fingerprint, OfOldCheckpointsStaysWhatItWas) {
  const TemporaryDirectory dir;
  const auto fingerprint = [&](std::int64_t count) {
    test::write_tokens(dir / "x", test::counting(0, count));
    return TokenFile(dir / "x", TokenFormat::uint16, 50000).old_fingerprint();
  };
  EXPECT_EQ(fingerprint(300), 0x07cfe43f8620f05fULL);
  EXPECT_EQ(fingerprint(100'000), 0x29ee9198c543e777ULL);
}

/// A sparse file of 2-byte tokens with one that is not zero at `position`; -1: none.
std::uint64_t fingerprint_of_sparse(const std::string& path, std::int64_t tokens, std::int64_t position,
                                    std::int64_t count = 1) {
  {
    const io::Descriptor file(::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0644));
    EXPECT_EQ(::ftruncate(file.get(), tokens * 2), 0);
    const std::vector<std::uint16_t> words(static_cast<std::size_t>(count), 7);
    if (position >= 0) {
      EXPECT_EQ(::pwrite(file.get(), words.data(), words.size() * 2, position * 2), count * 2);
    }
  }
  return TokenFile(path, TokenFormat::uint16, 50000).fingerprint();
}

TEST(Fingerprint, SeesEveryByteOfASmallFile) {
  const TemporaryDirectory dir;
  constexpr std::int64_t tokens = 2'000'000;  // 4 MB
  const std::uint64_t plain = fingerprint_of_sparse(dir / "plain", tokens, -1);
  for (const std::int64_t position : {0L, 40'000L, 777'777L, 1'234'567L, tokens - 1})
    EXPECT_NE(fingerprint_of_sparse(dir / "changed", tokens, position), plain) << position;
}

TEST(Fingerprint, SamplesAllPartsOfALargeFile) {
  const TemporaryDirectory dir;
  constexpr std::int64_t tokens = std::int64_t{1} << 28;
  constexpr std::int64_t two_parts = tokens / 128;
  const std::uint64_t plain = fingerprint_of_sparse(dir / "plain", tokens, -1);
  EXPECT_EQ(fingerprint_of_sparse(dir / "again", tokens, -1), plain);
  EXPECT_NE(fingerprint_of_sparse(dir / "longer", tokens + 1, -1), plain);
  for (const std::int64_t position : {0L, 12'345'678L, 123'456'789L, tokens - two_parts})
    EXPECT_NE(fingerprint_of_sparse(dir / "changed", tokens, position, two_parts), plain) << position;
}

TEST(Fingerprint, ComparesTheIndexOfDocumentsWhole) {
  const TemporaryDirectory dir;
  const auto fingerprint = [&](std::vector<std::int32_t> lengths, std::vector<std::int64_t> starts) {
    test::write_tokens(dir / "x.bin", test::counting(0, 300));
    const auto bytes = megatron_index_bytes(TokenType::uint16, lengths, starts);
    std::ofstream(dir / "x.idx", std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return TokenFile(dir / "x.bin", TokenFormat::automatic, 50000).fingerprint();
  };
  const std::uint64_t one = fingerprint({100, 200}, {0, 1, 2});
  EXPECT_EQ(fingerprint({100, 200}, {0, 1, 2}), one);
  EXPECT_NE(fingerprint({101, 199}, {0, 1, 2}), one) << "other sequences";
  EXPECT_NE(fingerprint({100, 200}, {0, 2, 2}), one) << "other documents";
}

}  // namespace
}  // namespace trireme::data
