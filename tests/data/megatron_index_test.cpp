// SPDX-License-Identifier: Apache-2.0
#include "data/megatron_index.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "data/files.hpp"

namespace trireme::data {
namespace {

using test::expect_parts;
using test::TemporaryDirectory;

const std::vector<std::int32_t> lengths = {3, 2, 4};
const std::vector<std::int64_t> starts = {0, 2, 3};

std::string good_index() {
  const std::vector<char> bytes = megatron_index_bytes(TokenType::uint16, lengths, starts);
  return {bytes.begin(), bytes.end()};
}

/// The error of a good index with `value` written at byte `at`.
template <class T>
std::string message_with(std::size_t at, T value) {
  const TemporaryDirectory dir;
  std::string bytes = good_index();
  std::memcpy(bytes.data() + at, &value, sizeof(T));
  test::write_file(dir / "x.idx", bytes);
  return test::error_of(ExitCode::data, [&] { (void)check_megatron_index(dir / "x.idx", 18); });
}

TEST(MegatronIndex, LaysItsBytesOutAsMegatronDoes) {
  std::string expected("MMIDIDX\0\0", 9);
  test::append_bytes(expected, std::uint64_t{1});
  test::append_bytes(expected, std::uint8_t{8});
  test::append_bytes(expected, std::uint64_t{3});
  test::append_bytes(expected, std::uint64_t{3});
  for (const std::int32_t length : {3, 2, 4}) test::append_bytes(expected, length);
  for (const std::int64_t offset : {0, 6, 10}) test::append_bytes(expected, offset);
  for (const std::int64_t start : {0, 2, 3}) test::append_bytes(expected, start);
  EXPECT_EQ(good_index(), expected);
}

TEST(MegatronIndex, CountsSequencesDocumentsAndTokens) {
  const TemporaryDirectory dir;
  test::write_file(dir / "x.idx", good_index());
  const MegatronIndex index = check_megatron_index(dir / "x.idx", 18);
  EXPECT_EQ(index.sequences, 3);
  EXPECT_EQ(index.documents, 2);
  EXPECT_EQ(index.tokens, 9);
  EXPECT_EQ(index.type, TokenType::uint16);
}

TEST(MegatronIndex, ReadsIndexesLongerThanAChunk) {
  const TemporaryDirectory dir;
  const std::vector<std::int32_t> many(200000, 1);
  const std::vector<char> bytes = megatron_index_bytes(TokenType::int32, many, std::vector<std::int64_t>{0, 200000});
  test::write_file(dir / "x.idx", {bytes.data(), bytes.size()});
  EXPECT_EQ(check_megatron_index(dir / "x.idx", 800000).tokens, 200000);
}

TEST(MegatronIndex, NamesWhatIsWrong) {
  expect_parts(message_with(0, 'X'), {"token index", "x.idx", "bad magic", "MMIDIDX", "preprocess_data.py"});
  expect_parts(message_with(0, std::array<char, 8>{'T', 'N', 'T', 'I', 'D', 'X'}),
               {"x.idx", "TNTIDX", "only MMIDIDX (--dataset-impl mmap) is read", "preprocess_data.py"});
  expect_parts(message_with(9, std::uint64_t{2}), {"version 2", "only 1"});
  expect_parts(message_with(17, std::uint8_t{7}), {"type code 7", "8 (uint16)"});
  expect_parts(message_with(18, std::uint64_t{4}),
               {"bytes do not fit 4 sequences and 3 document entries", "truncated"});
  expect_parts(message_with(18, ~std::uint64_t{0} / 3), {"do not fit"});
  expect_parts(message_with(26, ~std::uint64_t{0} / 4), {"do not fit"});
  expect_parts(message_with(34, std::int32_t{-1}), {"sequence 0 has -1 tokens"});
  expect_parts(message_with(34 + 12, std::int64_t{2}), {"sequence 0 begins at byte 2 where the one before ends at 0"});
  expect_parts(message_with(34 + 12 + 8, std::int64_t{8}),
               {"sequence 1 begins at byte 8 where the one before ends at 6"});
  expect_parts(message_with(34 + 36, std::int64_t{1}), {"document 0 begins at sequence 1"});
  expect_parts(message_with(34 + 36 + 8, std::int64_t{9}), {"document 1 begins at sequence 9"});
  expect_parts(message_with(34 + 36 + 16, std::int64_t{2}), {"the last document ends at sequence 2 of 3"});
}

TEST(MegatronIndex, NamesATruncatedOrForeignBin) {
  const TemporaryDirectory dir;
  test::write_file(dir / "x.idx", good_index());
  const auto message = [&](std::int64_t bytes) {
    return test::error_of(ExitCode::data, [&] { (void)check_megatron_index(dir / "x.idx", bytes); });
  };
  expect_parts(message(16), {"end at byte 18", "16 bytes", "the .bin is truncated"});
  expect_parts(message(20), {"end at byte 18", "20 bytes", "do not belong together"});
}

TEST(MegatronIndex, NamesATruncatedIndex) {
  const TemporaryDirectory dir;
  for (const std::size_t bytes : {0, 33, 34, 60}) {
    test::write_file(dir / "x.idx", good_index().substr(0, bytes));
    test::error_of(ExitCode::data, [&] { (void)check_megatron_index(dir / "x.idx", 18); });
  }
}

}  // namespace
}  // namespace trireme::data

// Fault, data: an index of fairseq or old Megatron-LM (TNTIDX) -> exit code 3 with the option to write the supported
//   format
