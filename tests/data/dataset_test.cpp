// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/dataset.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "data/files.hpp"

namespace trireme::data {
namespace {

using config::TokenFormat;
using test::counting;
using test::TemporaryDirectory;
using test::write_tokens;

TokenFile open(const std::string& path) { return {path, TokenFormat::uint16, 50000}; }

std::vector<std::int32_t> sample_of(const Dataset& dataset, std::int64_t sample) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(dataset.seq_len() + 1));
  dataset.read(sample, tokens);
  return tokens;
}

Dataset three_files(const TemporaryDirectory& dir) {
  std::vector<TokenFile> files;
  files.push_back(open(write_tokens(dir / "a", counting(1000, 9))));  // samples 0 1: the last token begins no sample
  files.push_back(open(write_tokens(dir / "b", counting(2000, 4))));  // too short
  files.push_back(open(write_tokens(dir / "c", counting(3000, 8))));  // sample 2
  return {std::move(files), 4};
}

TEST(Dataset, HoldsAsManySamplesAsItsFilesDo) {
  const test::Warnings warnings;
  const TemporaryDirectory dir;
  const Dataset dataset = three_files(dir);
  EXPECT_EQ(dataset.samples(), 2 + 0 + 1);
  EXPECT_EQ(dataset.tokens(), 9 + 4 + 8);
  ASSERT_EQ(warnings.lines.size(), 1);
  test::expect_parts(warnings.lines[0], {"/b is not used", "4 tokens", "data.seq_len + 1 = 5"});
}

TEST(Dataset, SamplesOverlapByOneTokenAndNeverCrossFiles) {
  const test::Warnings warnings;
  const TemporaryDirectory dir;
  const Dataset dataset = three_files(dir);
  EXPECT_EQ(sample_of(dataset, 0), counting(1000, 5));
  EXPECT_EQ(sample_of(dataset, 1), counting(1004, 5));
  EXPECT_EQ(sample_of(dataset, 2), counting(3000, 5));
  EXPECT_THROW(sample_of(dataset, 3), BugError);
}

TEST(Dataset, NamesTooFewTokensForOneSample) {
  const TemporaryDirectory dir;
  write_tokens(dir / "a", counting(0, 8));
  write_tokens(dir / "b", counting(0, 6));
  const auto message = [&](const std::vector<config::TokenSource>& sources) {
    return test::error_of(ExitCode::data, [&] { (void)open_datasets(sources, false, TokenFormat::uint16, 8, 50000); });
  };
  test::expect_parts(message({{.path = dir / "a"}}), {"/a has 8 tokens", "data.seq_len + 1 = 9", "at most 7"});
  test::expect_parts(message({{.path = dir / "b"}, {.path = dir / "a"}}), {"/a has 8 tokens", "longest of 2 files"});
}

TEST(OpenDatasets, ConcatenatesUnlessWeighted) {
  const TemporaryDirectory dir;
  const std::vector<config::TokenSource> sources = {{.path = write_tokens(dir / "a", counting(0, 9)), .weight = 1},
                                                    {.path = write_tokens(dir / "b", counting(0, 13)), .weight = 3}};
  const auto joined = open_datasets(sources, false, TokenFormat::automatic, 4, 50000);
  ASSERT_EQ(joined.size(), 1);
  EXPECT_EQ(joined[0].samples(), 5);
  const auto mixed = open_datasets(sources, true, TokenFormat::automatic, 4, 50000);
  ASSERT_EQ(mixed.size(), 2);
  EXPECT_EQ(mixed[0].samples(), 2);
  EXPECT_EQ(mixed[1].samples(), 3);
}

TEST(Dataset, PadsTheTailOfAFileWithTargetsThatDoNotCount) {
  const TemporaryDirectory dir;
  std::vector<std::int32_t> tokens(11);
  std::iota(tokens.begin(), tokens.end(), 100);
  std::vector<config::TokenSource> sources{{.path = test::write_tokens(dir / "a", tokens)},
                                           {.path = test::write_tokens(dir / "b", {7, 8})}};
  const auto datasets = open_datasets(sources, false, TokenFormat::uint16, 4, 50000, {}, FileTail::padded);
  const Dataset& dataset = datasets.at(0);
  ASSERT_EQ(dataset.samples(), 4) << "ten targets in rows of four, and one";
  EXPECT_TRUE(dataset.padded());
  std::vector<std::int32_t> sample(5);
  std::vector<std::uint8_t> mask(4);
  std::int64_t counted = 0;
  for (std::int64_t i = 0; i < 4; ++i) {
    dataset.read_mask(i, mask);
    counted += std::accumulate(mask.begin(), mask.end(), std::int64_t{0});
  }
  EXPECT_EQ(counted, 11);
  dataset.read(2, sample);
  EXPECT_EQ(sample, (std::vector<std::int32_t>{108, 109, 110, 0, 0}));
  dataset.read_mask(2, mask);
  EXPECT_EQ(mask, (std::vector<std::uint8_t>{1, 1, 0, 0}));
  dataset.read(3, sample);
  EXPECT_EQ(sample, (std::vector<std::int32_t>{7, 8, 0, 0, 0}));
  EXPECT_EQ(open_datasets(sources, false, TokenFormat::uint16, 4, 50000).at(0).samples(), 2) << "dropped for training";
}

}  // namespace
}  // namespace trireme::data
