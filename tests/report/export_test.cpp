// SPDX-License-Identifier: Apache-2.0
#include "trireme/report/export.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "trireme/base/crc32.hpp"

namespace trireme::report {
namespace {

using testing::HasSubstr;
using testing::Not;

RunRecord small_run(int steps) {
  RunRecord run{.name = "book"};
  for (int step = 1; step <= steps; ++step)
    for (const auto& [key, value] : {std::pair<const char*, double>{"step", step},
                                     {"time", 1.75e9 + step},
                                     {"loss", 0.1 + 0.2 * step},
                                     {"memory_peak_bytes/device/total", 64}})
      run.series[key].push_back({static_cast<double>(step), value});
  run.series["eval_losses/web \"x\""] = {{2, 2.5}};
  return run;
}

std::uint64_t number_at(std::string_view bytes, std::size_t at, int size) {
  std::uint64_t value = 0;
  for (int i = 0; i < size; ++i)
    value |= std::uint64_t{static_cast<unsigned char>(bytes[at + static_cast<std::size_t>(i)])} << (8 * i);
  return value;
}

/// The records of a log, read as wandb does; checks every checksum.
std::vector<std::string> records_of(const std::string& log) {
  std::vector<std::string> records;
  std::string record;
  EXPECT_EQ(log.substr(0, 7), std::string(":W&B\xe1\xbe\0", 7));
  for (std::size_t at = 7; at < log.size();) {
    const std::size_t left = 32768 - at % 32768;
    if (left < 7) {
      at += left;
      continue;
    }
    const std::size_t size = number_at(log, at + 4, 2);
    EXPECT_LE(size + 7, left) << "no fragment crosses a block";
    EXPECT_EQ(number_at(log, at, 4), crc32(std::string_view(log).substr(at + 6, size + 1)));
    const char kind = log[at + 6];
    EXPECT_EQ(record.empty(), kind == 1 || kind == 2);
    record += log.substr(at + 7, size);
    if (kind == 1 || kind == 4) records.push_back(std::exchange(record, ""));
    at += 7 + size;
  }
  EXPECT_EQ(record, "");
  return records;
}

TEST(ExportToWandb, IsALogOfNumberedRecords) {
  const std::vector<ExportedFile> files = wandb_files(small_run(3000), "books");
  ASSERT_EQ(files.size(), 1U);
  EXPECT_THAT(files[0].path, testing::MatchesRegex("offline-run-20250615_150641-[0-9a-f]{8}/run-[0-9a-f]{8}\\.wandb"));
  EXPECT_GT(files[0].bytes.size(), 100'000U) << "several blocks";
  const std::vector<std::string> records = records_of(files[0].bytes);
  ASSERT_EQ(records.size(), 3004U) << "header, run, steps, summary, exit";
  EXPECT_THAT(records[1], HasSubstr("books"));
  EXPECT_THAT(records[3], HasSubstr("0.5"));
  EXPECT_THAT(records[3], HasSubstr("eval_losses/web"));
  EXPECT_EQ(wandb_files(small_run(3000), "books")[0].path, files[0].path) << "the same run again";
}

const std::string& bytes_of(const std::vector<ExportedFile>& files, std::string_view end) {
  static const std::string none = "no such file";
  const auto found = std::find_if(files.begin(), files.end(), [&](auto& file) { return file.path.ends_with(end); });
  return found == files.end() ? none : found->bytes;
}

TEST(ExportToMlflow, HasAFileForEachMetric) {
  const std::vector<ExportedFile> files = mlflow_files(small_run(2), "books", "/data/mlruns");
  EXPECT_EQ(bytes_of(files, "/metrics/loss"), "1750000001000 0.30000000000000004 1\n1750000002000 0.5 2\n");
  EXPECT_EQ(bytes_of(files, "/metrics/memory_peak_bytes/device/total"), "1750000001000 64 1\n1750000002000 64 2\n");
  EXPECT_EQ(bytes_of(files, "/metrics/eval_losses/web _x_"), "1750000002000 2.5 2\n");
  EXPECT_THAT(bytes_of(files, "meta.yaml"), HasSubstr("artifact_location: \"file:///data/mlruns/"));
  EXPECT_EQ(bytes_of(files, "/tags/mlflow.runName"), "book");
}

TEST(ExportToPrometheus, HasTheLastValuesWithoutTimes) {
  const std::string text = prometheus_text(small_run(2));
  for (const char* line :
       {"# TYPE trireme_loss gauge\ntrireme_loss{run=\"book\"} 0.5\n", "trireme_step{run=\"book\"} 2\n",
        "trireme_memory_peak_bytes{run=\"book\",part=\"device/total\"} 64\n",
        "trireme_eval_losses{run=\"book\",part=\"web \\\"x\\\"\"} 2.5\n",
        "trireme_last_row_timestamp_seconds{run=\"book\"} 1750000002\n"})
    EXPECT_THAT(text, HasSubstr(line));
  EXPECT_THAT(text, Not(HasSubstr("0.3")));
}

}  // namespace
}  // namespace trireme::report
