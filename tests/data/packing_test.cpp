// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/packing.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "data/files.hpp"
#include "data/token_writer.hpp"
#include "trireme/data/batch_reader.hpp"

namespace trireme::data::packing_test {
namespace {

using test::counting;
using test::expect_parts;
using test::TemporaryDirectory;

constexpr std::int64_t vocab_size = 50000;

using Row = std::vector<TokenRange>;

std::vector<std::int64_t> ends_of(std::int64_t begin, const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> ends;
  for (const std::int64_t length : lengths) ends.push_back(begin += length);
  return ends;
}

std::vector<Row> rows_of(const PackedWindow& window) {
  std::vector<Row> rows;
  for (std::int64_t row = 0; row < window.counts().rows; ++row) rows.push_back(window.row(row));
  return rows;
}

/// Best-fit decreasing by trying all rows for each document.
std::vector<Row> plain_rows(std::int64_t begin, const std::vector<std::int64_t>& lengths, std::int64_t seq_len) {
  std::vector<Row> rows;
  Row rests;
  for (std::int64_t length : lengths) {
    const std::int64_t end = begin + length;
    for (; length > seq_len + 1; length -= seq_len, begin += seq_len) rows.push_back({{begin, seq_len + 1}});
    if (length > 1) rests.push_back({begin, length});
    begin = end;
  }
  std::ranges::stable_sort(rests, std::ranges::greater{}, &TokenRange::tokens);
  const std::size_t full = rows.size();
  const auto space = [&](const Row& row) {
    std::int64_t left = seq_len + 1;
    for (const TokenRange& range : row) left -= range.tokens;
    return left;
  };
  for (const TokenRange& rest : rests) {
    Row* best = nullptr;
    for (std::size_t i = full; i < rows.size(); ++i)
      if (space(rows[i]) >= rest.tokens && (best == nullptr || space(rows[i]) < space(*best))) best = &rows[i];
    if (best == nullptr) best = &rows.emplace_back();
    best->push_back(rest);
  }
  for (Row& row : rows) std::ranges::sort(row, {}, &TokenRange::begin);
  std::ranges::sort(rows, {}, [](const Row& row) { return row.front().begin; });
  return rows;
}

TEST(PackedWindow, PutsEachDocumentInTheRowWithTheLeastSpace) {
  // Rows of 10: 7, 6 and 5 open rows; 4 fits best to 6, 3 to 7, and 2 to 5.
  const PackedWindow window(100, ends_of(100, {5, 3, 7, 2, 6, 4}), 9);
  EXPECT_EQ(rows_of(window), (std::vector<Row>{{{100, 5}, {115, 2}}, {{105, 3}, {108, 7}}, {{117, 6}, {123, 4}}}));
  EXPECT_EQ(window.counts().padding, 3);
  EXPECT_EQ(window.counts().cut, 0);
}

TEST(PackedWindow, CutsOnlyDocumentsLongerThanARow) {
  const auto rows = [](std::int64_t length) { return rows_of({0, std::vector{length}, 4}); };
  EXPECT_EQ(rows(0), std::vector<Row>{});
  EXPECT_EQ(rows(1), std::vector<Row>{}) << "it has no target";
  EXPECT_EQ(rows(2), (std::vector<Row>{{{0, 2}}}));
  EXPECT_EQ(rows(5), (std::vector<Row>{{{0, 5}}}));
  EXPECT_EQ(rows(6), (std::vector<Row>{{{0, 5}}, {{4, 2}}})) << "the target behind the cut is in the second row";
  EXPECT_EQ(rows(9), (std::vector<Row>{{{0, 5}}, {{4, 5}}}));
  EXPECT_EQ(rows(10), (std::vector<Row>{{{0, 5}}, {{4, 5}}, {{8, 2}}}));
  EXPECT_EQ(rows_of({0, ends_of(0, {11, 2}), 4}), (std::vector<Row>{{{0, 5}}, {{4, 5}}, {{8, 3}, {11, 2}}}));
}

TEST(PackedWindow, EqualsThePlainRuleAndHasEveryTargetOnce) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const std::int64_t seq_len = 1 + random() % 40, begin = random() % 1000;
    std::vector<std::int64_t> lengths(random() % 60);
    for (std::int64_t& length : lengths) length = random() % 10 == 0 ? random() % 200 : random() % 30;
    const PackedWindow window(begin, ends_of(begin, lengths), seq_len);
    const std::vector<Row> rows = rows_of(window);
    ASSERT_EQ(rows, plain_rows(begin, lengths, seq_len)) << "round " << round;
    std::multiset<std::int64_t> found, expected;
    std::int64_t tokens = 0, padding = 0;
    for (const Row& row : rows) {
      std::int64_t held = 0;
      for (const TokenRange& range : row) {
        for (std::int64_t i = 1; i < range.tokens; ++i) found.insert(range.begin + i);
        held += range.tokens;
      }
      tokens += held;
      padding += seq_len + 1 - held;
    }
    std::int64_t at = begin, cut = 0, concatenated = 0, without = 0;
    for (const std::int64_t length : lengths) {
      std::set<std::int64_t> samples;
      for (std::int64_t i = 1; i < length; ++i) {
        expected.insert(at + i);
        samples.insert((at + i - 1) / seq_len);
      }
      cut += length > seq_len + 1 ? 1 : 0;
      concatenated += samples.size() > 1 ? 1 : 0;
      without += length < 2 ? 1 : 0;
      at += length;
    }
    EXPECT_EQ(found, expected);
    EXPECT_EQ(window.counts(), (PackingCounts{.documents = std::ssize(lengths),
                                              .rows = std::ssize(rows),
                                              .tokens = tokens,
                                              .padding = padding,
                                              .cut = cut,
                                              .without_target = without,
                                              .concatenated_cut = concatenated}));
  }
}

/// Writes documents of counting tokens; returns their lengths.
std::vector<std::int64_t> write_documents(const std::string& path, std::int64_t documents, unsigned seed,
                                          std::int64_t most = 12) {
  std::mt19937 random(seed);
  TokenWriter writer(path, vocab_size);
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < documents; ++i) {
    lengths.push_back(1 + static_cast<std::int64_t>(random() % static_cast<unsigned long>(most)));
    writer.append(counting(static_cast<std::int32_t>(writer.tokens() + 1), lengths.back()));
    writer.end_document();
  }
  writer.finish({.document_end = 7});
  return lengths;
}

TokenFile open(const std::string& path) { return {path, config::TokenFormat::automatic, vocab_size}; }

/// Rows of a file, window by window, in tokens of the file.
std::vector<Row> plain_rows_of_file(const std::vector<std::int64_t>& lengths, std::int64_t seq_len) {
  std::vector<Row> rows;
  std::int64_t begin = 0;
  for (std::size_t first = 0; first < lengths.size(); first += packing_window) {
    const auto from = lengths.begin() + static_cast<std::ptrdiff_t>(first);
    const std::vector<std::int64_t> window(from, from + std::min<std::ptrdiff_t>(packing_window, lengths.end() - from));
    std::ranges::move(plain_rows(begin, window, seq_len), std::back_inserter(rows));
    for (const std::int64_t length : window) begin += length;
  }
  return rows;
}

TEST(PackedRows, AreThoseOfTheWindowsHoweverFewAreKept) {
  const TemporaryDirectory dir;
  const std::vector<std::int64_t> lengths = write_documents(dir / "a.bin", packing_window + 100, 3);
  const TokenFile file = open(dir / "a.bin");
  const PackingPlan plan = plan_packing(file, 20);
  ASSERT_EQ(plan.first_rows.size(), 3);
  EXPECT_EQ(decode_plans(encode(std::vector{plan, PackingPlan{}})), (std::vector{plan, PackingPlan{}}));
  const std::vector<Row> rows = plain_rows_of_file(lengths, 20);
  ASSERT_EQ(plan.counts.rows, std::ssize(rows));
  for (const std::size_t kept : {1, 2, 256}) {
    const PackedRows packed({plan}, 20, kept);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::size_t row = i * 1009 % rows.size();
      ASSERT_EQ(packed.row(file, 0, static_cast<std::int64_t>(row)), rows[row]) << row;
    }
  }
}

TEST(PackedRows, RefuseDocumentEndsThatChanged) {
  const TemporaryDirectory dir;
  (void)write_documents(dir / "a.bin", 50, 4);
  const TokenFile file = open(dir / "a.bin");
  PackingPlan other = plan_packing(file, 20);
  other.first_rows.back() += 1;
  expect_parts(test::error_of(ExitCode::data, [&] { (void)PackedRows({other}, 20, 1).row(file, 0, 0); }),
               {"a.bin", "document ends are not those of the start", "documents 0 to 49"});
}

/// Packed by the program: inputs and targets of one epoch in the order of the files.
config::Data packed_data(const std::vector<config::TokenSource>& sources, std::int64_t seq_len) {
  config::Data data;
  data.train = sources;
  data.seq_len = seq_len;
  data.shuffle = false;
  data.packing = config::Packing::best_fit;
  data.document_mask = true;
  return data;
}

TEST(PackedDataset, ReadsTokensTargetsAndDocumentsOfItsRows) {
  const TemporaryDirectory dir;
  TokenWriter writer(dir / "a.bin", vocab_size, true);
  writer.append(std::vector{11, 12, 13}, std::vector<std::uint8_t>{1, 0, 1});
  writer.end_document();
  writer.append(std::vector{21, 22}, std::vector<std::uint8_t>{1, 1});
  writer.end_document();
  writer.append(std::vector{31, 32, 33, 34, 35, 36, 37, 38, 39}, std::vector<std::uint8_t>(9, 1));
  writer.end_document();
  writer.finish({.document_end = 7});
  const auto data = packed_data({{.path = dir / "a.bin"}}, 6);
  const Datasets datasets = open_split(data, Split::train, vocab_size);
  const Dataset& dataset = datasets->front();
  ASSERT_EQ(dataset.samples(), 3);
  std::vector<std::int32_t> tokens(7), begins(6);
  std::vector<std::uint8_t> mask(6);
  const auto read = [&](std::int64_t sample) {
    dataset.read(sample, tokens);
    dataset.read_mask(sample, mask);
    dataset.read_document_begins(sample, tokens, std::nullopt, begins);
  };
  read(0);  // 3 tokens, and the rest of the long document; 7 is the end of a document
  EXPECT_EQ(tokens, (std::vector{11, 12, 13, 37, 38, 39, 7}));
  EXPECT_EQ(mask, (std::vector<std::uint8_t>{0, 1, 0, 1, 1, 0}));
  EXPECT_EQ(begins, (std::vector{0, 0, 0, 3, 3, 3}));
  EXPECT_EQ(dataset.inputs_of_documents(0), 6);
  read(1);
  EXPECT_EQ(tokens, (std::vector{21, 22, 7, 7, 7, 7, 7}));
  EXPECT_EQ(mask, (std::vector<std::uint8_t>{1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(begins, (std::vector{0, 0, 2, 2, 2, 2}));
  EXPECT_EQ(dataset.inputs_of_documents(1), 2);
  read(2);
  EXPECT_EQ(tokens, (std::vector{31, 32, 33, 34, 35, 36, 37}));
  EXPECT_EQ(mask, std::vector<std::uint8_t>(6, 1));
  EXPECT_EQ(begins, std::vector<std::int32_t>(6, 0));
  EXPECT_EQ(dataset.inputs_of_documents(2), 6);
  ASSERT_TRUE(dataset.packing());
  EXPECT_EQ(dataset.packing()->cut, 1);
}

/// Inputs and targets of an epoch, by the place of their row in the run.
std::map<std::int64_t, std::vector<std::int32_t>> epoch_of(const config::Data& data, std::int64_t dp_size,
                                                           std::int64_t micro) {
  std::map<std::int64_t, std::vector<std::int32_t>> rows;
  for (std::int64_t rank = 0; rank < dp_size; ++rank) {
    BatchReader reader(data, Split::train, vocab_size, 1, {.dp_rank = rank, .dp_size = dp_size, .micro = micro});
    for (std::int64_t step = 0; step < 24 / (dp_size * micro); ++step) {
      const StepBatch batch = reader.next();
      EXPECT_TRUE(batch.packed && batch.masked);
      const MicrobatchTokens& tokens = batch.microbatches.front();
      for (std::int64_t row = 0; row < micro; ++row) {
        auto& out = rows[batch.first_sample + rank * micro + row];
        for (const auto* values : {&tokens.inputs, &tokens.targets, &tokens.document_begins})
          out.insert(out.end(), values->begin() + row * data.seq_len, values->begin() + (row + 1) * data.seq_len);
      }
    }
  }
  return rows;
}

TEST(PackedDataset, SamplesOfSeveralSourcesDoNotDependOnRanks) {
  const TemporaryDirectory dir;
  (void)write_documents(dir / "a.bin", 60, 5, 30);
  (void)write_documents(dir / "b.idx", 80, 6);
  for (const bool weighted : {false, true})
    for (const bool shuffle : {false, true}) {
      auto data = packed_data({{.path = dir / "a.bin", .weight = 0.3}, {.path = dir / "b.idx", .weight = 0.7}}, 15);
      data.weighted = weighted;
      data.shuffle = shuffle;
      const auto expected = epoch_of(data, 1, 1);
      ASSERT_EQ(expected.size(), 24);
      EXPECT_EQ(epoch_of(data, 2, 3), expected);
      EXPECT_EQ(epoch_of(data, 4, 2), expected);
    }
}

TEST(PackedDataset, CountsEveryTargetOfAValidationSetOnce) {
  const TemporaryDirectory dir;
  const std::vector<std::int64_t> lengths = write_documents(dir / "a.bin", 300, 7, 40);
  auto data = packed_data({{.path = dir / "a.bin"}}, 15);
  data.validation = data.train;
  std::int64_t targets = 0;
  for (const std::int64_t length : lengths) targets += length - 1;
  std::int64_t counted = 0, padding = 0;
  BatchReader reader(data, Split::validation, vocab_size, 1, {.micro = 7});
  for (std::int64_t read = 0; read < reader.samples(); read += 7) {
    const StepBatch batch = reader.next();
    counted += batch.counted;
    padding += batch.padding;
  }
  EXPECT_EQ(counted, targets);
  EXPECT_GT(padding, 0);
}

TEST(PackedDataset, IsRefusedWithoutDocumentEndsOrTargets) {
  const TemporaryDirectory dir;
  test::write_tokens(dir / "bare", counting(1, 100));
  const auto open_packed = [](const std::string& path) {
    auto data = packed_data({{.path = path}}, 15);
    data.document_end = 7;
    (void)open_split(data, Split::train, vocab_size);
  };
  expect_parts(test::error_of(ExitCode::usage, [&] { open_packed(dir / "bare"); }),
               {"bare", "neither a sidecar", "trireme tokenize", "data.packing = \"concatenate\""});
  (void)write_documents(dir / "short.bin", 20, 8, 1);
  expect_parts(test::error_of(ExitCode::data, [&] { open_packed(dir / "short.bin"); }),
               {"short.bin", "none of its 20 documents has 2 tokens"});
}

}  // namespace
}  // namespace trireme::data::packing_test
