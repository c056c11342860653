// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/batch_reader.hpp"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <memory>

#include "data/files.hpp"
#include "trireme/base/fault.hpp"

namespace trireme::data {
namespace {

using test::counting;
using test::TemporaryDirectory;

constexpr std::int64_t vocab_size = 50000;
constexpr std::int64_t seq_len = 4;

using Rows = std::vector<std::vector<std::int32_t>>;  // [samples][seq_len + 1]

/// Two files of 6 and 9 samples.
config::Data two_files(const TemporaryDirectory& dir) {
  config::Data data;
  data.train = {{.path = test::write_tokens(dir / "a", counting(1000, 27)), .weight = 0.3},
                {.path = test::write_tokens(dir / "b", counting(2000, 37)), .weight = 0.7}};
  data.seq_len = seq_len;
  data.shuffle = false;
  return data;
}

/// The plain definition without shuffle and weights: sample k of the run, straight from the numbers written above.
std::vector<std::int32_t> plain_sample(std::int64_t k) {
  const std::int64_t sample = k % 15;
  return sample < 6 ? counting(static_cast<std::int32_t>(1000 + sample * seq_len), seq_len + 1)
                    : counting(static_cast<std::int32_t>(2000 + (sample - 6) * seq_len), seq_len + 1);
}

/// The rows of a microbatch, inputs and last target joined again.
Rows rows_of(const MicrobatchTokens& microbatch) {
  Rows rows;
  for (std::size_t at = 0; at < microbatch.inputs.size(); at += seq_len) {
    std::vector<std::int32_t> row(microbatch.inputs.begin() + static_cast<std::ptrdiff_t>(at),
                                  microbatch.inputs.begin() + static_cast<std::ptrdiff_t>(at + seq_len));
    row.push_back(microbatch.targets[at + seq_len - 1]);
    for (std::size_t i = 0; i + 1 < row.size(); ++i) EXPECT_EQ(microbatch.targets[at + i], row[i + 1]);
    rows.push_back(row);
  }
  return rows;
}

/// `steps` steps of all dp ranks, put back into the order of the run.
Rows union_of_ranks(const config::Data& data, std::int64_t dp_size, std::int64_t micro, std::int64_t accumulation,
                    int steps, SamplerState from = {}) {
  const std::int64_t global = dp_size * micro * accumulation;
  Rows all(static_cast<std::size_t>(global * steps));
  for (std::int64_t rank = 0; rank < dp_size; ++rank) {
    BatchReader reader(data, Split::train, vocab_size, 1,
                       {.dp_rank = rank, .dp_size = dp_size, .micro = micro, .accumulation = accumulation}, from);
    for (int step = 0; step < steps; ++step) {
      const StepBatch batch = reader.next();
      EXPECT_EQ(batch.first_sample, from.position + step * global);
      EXPECT_EQ(batch.counted, micro * accumulation * seq_len);
      for (std::int64_t a = 0; a < accumulation; ++a) {
        const Rows rows = rows_of(batch.microbatches[static_cast<std::size_t>(a)]);
        for (std::int64_t j = 0; j < micro; ++j) {
          all[static_cast<std::size_t>(step * global + a * dp_size * micro + rank * micro + j)] =
              rows[static_cast<std::size_t>(j)];
        }
      }
    }
  }
  return all;
}

TEST(BatchReader, DeliversTheSamplesOfThePlainDefinition) {
  const TemporaryDirectory dir;
  Rows expected;
  for (std::int64_t k = 0; k < 48; ++k) expected.push_back(plain_sample(k));
  EXPECT_EQ(union_of_ranks(two_files(dir), 3, 2, 2, 4), expected);
}

TEST(BatchReader, TheUnionOverRanksDoesNotDependOnTheMeshNorTheCut) {
  const TemporaryDirectory dir;
  for (const bool shuffle : {false, true}) {
    for (const bool weighted : {false, true}) {
      config::Data data = two_files(dir);
      data.shuffle = shuffle;
      data.weighted = weighted;
      const Rows expected = union_of_ranks(data, 1, 840, 1, 1);  // 840: divisible by 1 to 8
      for (std::int64_t dp_size = 1; dp_size <= 8; ++dp_size) {
        for (const auto& [micro, accumulation] : {std::array<std::int64_t, 2>{1, 3}, {5, 1}, {1, 1}, {3, 5}}) {
          const auto steps = static_cast<int>(840 / (dp_size * micro * accumulation));
          Rows rows = union_of_ranks(data, dp_size, micro, accumulation, steps);
          ASSERT_EQ(rows, Rows(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(rows.size())))
              << "dp " << dp_size << " micro " << micro << " accumulation " << accumulation;
        }
      }
    }
  }
}

TEST(BatchReader, ContinuesOnAnotherMeshAtExactlyTheNextSample) {
  const TemporaryDirectory dir;
  for (const bool weighted : {false, true}) {
    config::Data data = two_files(dir);
    data.shuffle = true;
    data.weighted = weighted;
    const Rows whole = union_of_ranks(data, 1, 60, 1, 1);

    BatchReader first(data, Split::train, vocab_size, 1, {.dp_rank = 0, .dp_size = 2, .micro = 6, .accumulation = 1});
    (void)first.next();
    (void)first.next();
    EXPECT_EQ(first.state().position, 24);
    const Rows rest(whole.begin() + 24, whole.end());
    EXPECT_EQ(union_of_ranks(data, 3, 4, 1, 3, first.state()), rest);
    EXPECT_EQ(union_of_ranks(data, 3, 4, 3, 1, {.position = 24, .taken = {}}), rest);
  }
}

TEST(BatchReader, TheStateIsThatOfTheLastDeliveredStepNotOfTheReadAhead) {
  const TemporaryDirectory dir;
  config::Data data = two_files(dir);
  data.prefetch_batches = 5;
  BatchReader reader(data, Split::train, vocab_size, 1, {.micro = 2});
  EXPECT_EQ(reader.state().position, 0);
  for (int step = 1; step <= 3; ++step) {
    (void)reader.next();
    EXPECT_EQ(reader.state().position, step * 2);
  }
}

TEST(BatchReader, ReadsTheSameWithoutAThread) {
  const TemporaryDirectory dir;
  config::Data data = two_files(dir);
  const Rows expected = union_of_ranks(data, 2, 2, 2, 3);
  data.prefetch_batches = 0;
  EXPECT_EQ(union_of_ranks(data, 2, 2, 2, 3), expected);
}

TEST(BatchReader, IgnoredTargetsDoNotCountButStayInputs) {
  const TemporaryDirectory dir;
  config::Data data = two_files(dir);
  data.ignore_targets = {1003, 1001, 7};
  BatchReader reader(data, Split::train, vocab_size, 1, {.micro = 2});
  const StepBatch batch = reader.next();
  const MicrobatchTokens& microbatch = batch.microbatches.at(0);
  EXPECT_EQ(microbatch.inputs, counting(1000, 8));
  EXPECT_EQ(microbatch.targets, (std::vector<std::int32_t>{-1, 1002, -1, 1004, 1005, 1006, 1007, 1008}));
  EXPECT_EQ(microbatch.counted, 6);
  EXPECT_EQ(batch.counted, 6);
}

TEST(BatchReader, TheSeedIsTheRunsUnlessTheDataHasItsOwn) {
  const TemporaryDirectory dir;
  config::Data data = two_files(dir);
  data.shuffle = true;
  const auto inputs = [&](std::uint64_t run_seed) {
    return BatchReader(data, Split::train, vocab_size, run_seed, {.micro = 15}).next().microbatches[0].inputs;
  };
  const auto of_one = inputs(1);
  EXPECT_NE(of_one, inputs(2));
  data.seed = 1;
  EXPECT_EQ(of_one, inputs(2));
}

TEST(BatchReader, ValidationIsReadInOrder) {
  const TemporaryDirectory dir;
  config::Data data = two_files(dir);
  data.validation = data.train;
  data.shuffle = true;
  data.weighted = true;
  BatchReader reader(data, Split::validation, vocab_size, 1, {.micro = 6});
  EXPECT_EQ(reader.samples(), 16) << "with the tail of the first file";
  const Rows rows = rows_of(reader.next().microbatches[0]);
  for (std::int64_t k = 0; k < 6; ++k) EXPECT_EQ(rows[static_cast<std::size_t>(k)], plain_sample(k));
}

TEST(BatchReader, ValidationCountsEveryTargetOfItsFilesOnce) {
  const TemporaryDirectory dir;
  config::Data data = two_files(dir);
  data.validation = data.train;
  for (const std::int64_t dp_size : {1, 2, 5}) {
    std::int64_t counted = 0;
    for (std::int64_t rank = 0; rank < dp_size; ++rank) {
      BatchReader reader(data, Split::validation, vocab_size, 1, {.dp_rank = rank, .dp_size = dp_size, .micro = 2});
      for (std::int64_t first = 0; first < reader.samples(); first += 2 * dp_size) counted += reader.next().counted;
    }
    EXPECT_EQ(counted, 26 + 36) << "tails included";
  }
}

TEST(BatchReader, ValidationOfSomeSequencesCountsThemAloneOnAnyRanks) {
  const TemporaryDirectory dir;
  config::Data data = two_files(dir);
  data.validation = data.train;
  for (const std::int64_t dp_size : {1, 2, 4}) {
    std::int64_t counted = 0;
    for (std::int64_t rank = 0; rank < dp_size; ++rank) {
      BatchReader reader(data, Split::validation, vocab_size, 1,
                         {.dp_rank = rank, .dp_size = dp_size, .micro = 2, .end = 5});
      for (std::int64_t first = 0; first < 5; first += 2 * dp_size) counted += reader.next().counted;
    }
    EXPECT_EQ(counted, 5 * seq_len);
  }
}

TEST(BatchReader, AnErrorOfTheThreadIsThrownByNextAfterTheBatchesBeforeIt) {
  const TemporaryDirectory dir;
  config::Data data = two_files(dir);
  std::vector<std::int32_t> tokens = counting(0, 21);  // 5 samples
  tokens[14] = 40000;                                  // in the fourth
  data.train = {{.path = test::write_tokens(dir / "bad", tokens)}};
  data.prefetch_batches = 3;
  BatchReader reader(data, Split::train, 32000, 1, {.micro = 1});
  for (int step = 0; step < 3; ++step) (void)reader.next();
  for (int again = 0; again < 2; ++again) {
    test::expect_parts(test::error_of(ExitCode::data, [&] { (void)reader.next(); }),
                       {"/bad", "token 40000 at position 14"});
  }
  EXPECT_EQ(reader.state().position, 3);
}

TEST(BatchReader, MistakesInTheFilesAreThrownByTheConstructor) {
  const TemporaryDirectory dir;
  config::Data data = two_files(dir);
  data.train[1].path = dir / "c";
  test::expect_parts(test::error_of(ExitCode::data, [&] { BatchReader(data, Split::train, vocab_size, 1, {}); }),
                     {"c does not exist"});
}

TEST(BatchReader, StopsAtOnceWhileTheThreadWaitsOrReads) {
  const TemporaryDirectory dir;
  config::Data data = two_files(dir);
  for (const std::int64_t prefetch : {1, 2, 50}) {
    data.prefetch_batches = prefetch;
    for (int i = 0; i < 50; ++i) {
      BatchReader reader(data, Split::train, vocab_size, 1, {.micro = 3});
      if (i % 2 == 0) (void)reader.next();
    }
  }
}

TEST(BatchReader, ReadsNoFurtherAheadThanItIsAllowed) {
  const TemporaryDirectory dir;
  config::Data data = two_files(dir);
  data.prefetch_batches = 3;
  BatchReader reader(data, Split::train, vocab_size, 1, {.micro = 3, .accumulation = 2});
  EXPECT_EQ(reader.buffer_bytes(), Bytes{4 * 2 * 3 * seq_len * 2 * 4});
}

TEST(BatchReader, PassesTheFaultPointDataRead) {
  const TemporaryDirectory dir;
  const config::Data data = two_files(dir);
  fault::arm("data.read:throw");
  BatchReader reader(data, Split::train, vocab_size, 1, {});
  test::expect_parts(test::error_of(ExitCode::bug, [&] { (void)reader.next(); }), {"data.read"});
  fault::arm("");
}

}  // namespace
}  // namespace trireme::data
