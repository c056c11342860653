// SPDX-License-Identifier: Apache-2.0
#include "data/token_parts.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "data/files.hpp"

namespace trireme::data::token_parts_test {
namespace {

using test::TemporaryDirectory;

std::string text_of(text::Stream& stream, std::size_t at_once = 7) {
  std::string all, chunk(at_once, '\0');
  while (const std::size_t got = stream.read(chunk)) all += chunk.substr(0, got);
  return all;
}

TEST(LineRange, GivesEachLineToTheRangeThatItBeginsIn) {
  const TemporaryDirectory dir;
  for (const std::string text : {"a\nbcd\n\nefghij\nk\n", "a\nbcd\n\nefghij\nk", "\n\n", "no line end", "x"}) {
    test::write_file(dir / "text", text);
    const auto size = static_cast<std::int64_t>(text.size());
    for (std::int64_t bytes = 1; bytes <= size; ++bytes) {
      std::string joined;
      for (std::int64_t begin = 0; begin < size; begin += bytes) {
        text::Stream stream(dir / "text", text::LineRange{.begin = begin, .end = std::min(begin + bytes, size)});
        const std::string part = text_of(stream);
        EXPECT_EQ(stream.consumed(), std::ssize(part));
        const bool whole_lines = part.empty() || part.ends_with('\n') || joined.size() + part.size() == text.size();
        EXPECT_TRUE(whole_lines) << text << " by " << bytes;
        joined += part;
      }
      EXPECT_EQ(joined, text) << "ranges of " << bytes << " bytes";
    }
  }
}

TEST(LineRange, PassesOverALineLongerThanTheBuffer) {
  const TemporaryDirectory dir;
  const std::string first(700'000, 'a'), second(300'000, 'b');
  test::write_file(dir / "text", first + "\n" + second + "\nc\n");
  for (const std::int64_t cut : {1, 262'144, 600'000, 700'000}) {
    text::Stream one(dir / "text", text::LineRange{.begin = 0, .end = cut});
    text::Stream two(dir / "text", text::LineRange{.begin = cut, .end = 1'000'004});
    EXPECT_EQ(text_of(one, 100'000), first + "\n") << cut;
    EXPECT_EQ(text_of(two, 100'000), second + "\nc\n") << cut;
  }
}

std::vector<TextFile> files_of_sizes(const std::vector<std::int64_t>& sizes) {
  std::vector<TextFile> files;
  for (const std::int64_t bytes : sizes) files.push_back({.path = "f", .bytes = bytes, .compressed = bytes % 2 == 1});
  return files;
}

TEST(TextUnits, DivideUncompressedLinesAndLeaveOtherFilesWhole) {
  const std::vector<TextFile> files = files_of_sizes({10, 2'000'000, 2'000'001});
  const std::vector<TextUnit> units = units_of(files, true, 524'288);
  std::vector<TextUnit::Kind> kinds;
  for (const TextUnit& unit : units) kinds.push_back(unit.kind);
  using enum TextUnit::Kind;
  EXPECT_EQ(kinds, (std::vector{whole, lines, lines, lines, lines, hash, whole}));
  EXPECT_EQ(units_of(files, false, 524'288).size(), 3U);
}

TEST(TextUnits, HaveManySmallFilesInOrder) {
  // Units of 100 bytes of work: 40 + 50, 4 x 13 + 40, a divided file, 30 + 0 + 60, 20.
  const std::vector<TextFile> files = files_of_sizes({40, 50, 13, 40, 200, 30, 0, 60, 20});
  std::vector<std::pair<std::size_t, std::size_t>> groups;
  for (const TextUnit& unit : units_of(files, true, 100))
    if (unit.kind == TextUnit::Kind::whole) groups.emplace_back(unit.file, unit.files);
  EXPECT_EQ(groups, (std::vector<std::pair<std::size_t, std::size_t>>{{0, 2}, {2, 2}, {5, 3}, {8, 1}}));
  std::vector<std::int64_t> work;
  for (const TextUnit& unit : units_of(files, false, 100)) work.push_back(work_of(unit, files));
  EXPECT_EQ(work, (std::vector<std::int64_t>{90, 92, 200, 90, 20}));
  std::size_t counted = 0;
  for (const TextUnit& unit : units_of(files_of_sizes(std::vector<std::int64_t>(5000, 2)), true, 1 << 20)) {
    EXPECT_LE(unit.files, 1024U);
    EXPECT_EQ(unit.file, counted);
    counted += unit.files;
  }
  EXPECT_EQ(counted, 5000U);
}

TEST(TextUnits, RanksGetEqualBytes) {
  // A corpus of 4 GB in uncompressed files of several sizes.
  const std::vector<TextFile> files =
      files_of_sizes({1'500'000'000, 900'000'000, 700'000'000, 500'000'000, 250'000'000, 150'000'000});
  const std::vector<TextUnit> units = units_of(files, true, bytes_of_unit(4'000'000'000));
  for (const int ranks : {1, 2, 3, 4, 7, 16}) {
    const std::vector<int> rank = assign(units, files, ranks);
    std::vector<double> load(static_cast<std::size_t>(ranks));
    for (std::size_t i = 0; i < units.size(); ++i)
      load[static_cast<std::size_t>(rank[i])] += static_cast<double>(work_of(units[i], files));
    const double share = std::accumulate(load.begin(), load.end(), 0.0) / ranks;
    for (const double bytes : load) EXPECT_NEAR(bytes, share, 0.05 * share) << ranks << " ranks";
  }
}

TEST(TextFiles, ComeThroughABroadcast) {
  const std::vector<TextFile> files{{.path = "a b\n.jsonl", .bytes = 3, .changed = 17, .compressed = true},
                                    {.path = "c", .bytes = 0, .changed = -1}};
  EXPECT_EQ(decode_files(encode(files)), files);
}

TEST(TokenParts, GiveBackWhatWasEncodedAndNoticeDamageAndOtherFiles) {
  const TemporaryDirectory dir;
  test::write_file(dir / "a.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"\"}\nno json\n{\"text\": \"c\"}\n");
  const auto tokenizer = tokenizer::make_tokenizer("bytes");
  const TokenizeOptions options{.spec = "bytes", .field = "text", .skip_bad = 1};
  std::vector<TextFile> files = look_at_files({dir / "a.jsonl"}, true);
  const TextUnit unit = units_of(files, true, 1000).front();
  const std::string identity = identity_of_ids(*tokenizer, options);
  const TokenParts parts(dir.path(), identity, files, 257);
  EXPECT_FALSE(parts.is_complete(0, unit));
  parts.write(0, unit, *tokenizer, options, [](std::int64_t) {});
  EXPECT_TRUE(parts.is_complete(0, unit));
  EXPECT_FALSE(TokenParts(dir.path(), "other options", files, 257).is_complete(0, unit));
  std::vector<text::EncodedPart> read;
  const auto take = [&](const Encoded& encoded) { read.insert(read.end(), encoded.begin(), encoded.end()); };
  EXPECT_EQ(parts.read(0, unit, take), std::vector{hash_of_file(dir / "a.jsonl", [](std::int64_t) {})});
  ASSERT_EQ(read.size(), 4U);
  EXPECT_EQ(read[0].ids, (std::vector<std::int32_t>{'a', 'b', 256}));
  EXPECT_TRUE(read[1].empty);
  test::expect_parts(read[2].bad, {"line 3"});
  EXPECT_EQ(read[3].text_bytes, 1);
  std::string bytes = test::file_bytes(dir / "part-0000000");
  bytes[40] ^= 1;
  test::write_file(dir / "part-0000000", bytes);
  test::expect_parts(test::error_of(ExitCode::data, [&] { (void)parts.read(0, unit, take); }), {"is damaged"});
  files.front().changed += 1;
  EXPECT_FALSE(parts.is_complete(0, unit)) << "the file was changed";
}

TEST(TokenParts, HoldTheDocumentsAndHashesOfSeveralFiles) {
  const TemporaryDirectory dir;
  std::vector<std::string> paths;
  for (const char* text : {"{\"text\": \"ab\"}\n", "", "{\"text\": \"c\"}"}) {
    paths.push_back(dir / fmt::format("{}.jsonl", paths.size()));
    test::write_file(paths.back(), text);
  }
  const auto tokenizer = tokenizer::make_tokenizer("bytes");
  const TokenizeOptions options{.spec = "bytes", .field = "text"};
  std::vector<TextFile> files = look_at_files(paths, true);
  const std::vector<TextUnit> units = units_of(files, true, 1000);
  ASSERT_EQ(units.size(), 1U);
  const TokenParts parts(dir.path(), "identity", files, 257);
  std::vector<std::int64_t> advances;
  parts.write(0, units[0], *tokenizer, options, [&](std::int64_t bytes) { advances.push_back(bytes); });
  EXPECT_TRUE(std::ranges::is_sorted(advances));
  EXPECT_EQ(advances.back(), units[0].end);
  std::vector<std::int32_t> ids, expected{'a', 'b', 256, 'c', 256};
  const std::vector<std::string> hashes = parts.read(0, units[0], [&](const Encoded& encoded) {
    for (const text::EncodedPart& part : encoded) ids.insert(ids.end(), part.ids.begin(), part.ids.end());
  });
  EXPECT_EQ(ids, expected);
  ASSERT_EQ(hashes.size(), 3U);
  for (std::size_t i = 0; i < hashes.size(); ++i)
    EXPECT_EQ(hashes[i], hash_of_file(paths[i], [](std::int64_t) {})) << i;
  files[1].changed += 1;
  EXPECT_FALSE(parts.is_complete(0, units[0])) << "a file was changed";
}

}  // namespace
}  // namespace trireme::data::token_parts_test

// Fault, data: a damaged part; a text that changes while it is read -> exit code 3
