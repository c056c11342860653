// SPDX-License-Identifier: Apache-2.0
#include "train/record/log_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "support/resource_limit.hpp"
#include "support/temporary_directory.hpp"
#include "train/record/metrics.hpp"
#include "train/record/report_files.hpp"
#include "trireme/base/error.hpp"

namespace trireme::train {
namespace {

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string record(int n) { return std::string(90, static_cast<char>('a' + n % 26)) + std::to_string(n) + "\n"; }

class LogFileTest : public testing::Test {
 protected:
  const test::TemporaryDirectory directory_;
  const std::string path_ = directory_ / "log";
};

TEST_F(LogFileTest, CatchesUpByteForByteWhenThereIsSpaceAgain) {
  std::string expected;
  LogFile file(path_, LogFile::Begin::empty, "lines");
  const auto append = [&](int n) {
    file.append(record(n));
    expected += record(n);
  };
  append(0);
  for (const rlim_t limit : {150, 512}) {  // the limit falls into a record
    const test::FileLimit full(limit);
    for (int n = 1; n < 9; ++n) append(n);
    EXPECT_FALSE(file.flush());
    EXPECT_EQ(contents(path_), expected.substr(0, limit)) << "what fits is there";
  }
  append(9);
  EXPECT_EQ(contents(path_), expected);
}

TEST_F(LogFileTest, KeepsNoMoreThanItMay) {
  LogFile file(path_, LogFile::Begin::empty, "lines", 250);
  {
    const test::FileLimit full(0);
    for (int n = 0; n < 100; ++n) file.append(record(n));
  }
  EXPECT_TRUE(file.flush());
  EXPECT_EQ(contents(path_), record(0) + record(1));
}

TEST_F(LogFileTest, WritesWhatIsLeftAtItsEnd) {
  {
    const test::FileLimit full(0);
    LogFile file(path_, LogFile::Begin::empty, "lines");
    file.append(record(1));
  }
  EXPECT_EQ(contents(path_), "") << "the disk is full to the end";
  {
    LogFile file(path_, LogFile::Begin::append, "lines");
    {
      const test::FileLimit full(0);
      file.append(record(2));
    }
  }
  EXPECT_EQ(contents(path_), record(2));
}

TEST_F(LogFileTest, ReportsThatItCannotBegin) {
  EXPECT_THROW(LogFile(directory_ / "nowhere/log", LogFile::Begin::empty, "lines"), WriteError);
}

TEST_F(LogFileTest, WaitsForNoReaderOfAFifo) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  for (const auto& open : {std::function([&] { (void)LogFile(path_, LogFile::Begin::append, "lines"); }),
                           std::function([&] { (void)keep_lines(path_, 1); })})
    try {
      open();
      ADD_FAILURE() << "it was taken for a file";
    } catch (const WriteError& error) {
      EXPECT_NE(std::string(error.what()).find("it is a FIFO, not a regular file"), std::string::npos) << error.what();
    }
}

TEST_F(LogFileTest, SurvivesADiskThatIsAlwaysFull) {
  LogFile file("/dev/full", LogFile::Begin::append, "lines");
  for (int n = 0; n < 10; ++n) file.append(record(n));
  EXPECT_FALSE(file.flush());
}

TEST(ReportFiles, AreWrittenWhenThereIsSpaceAndTheOldOneStaysUntilThen) {
  const test::TemporaryDirectory directory;
  const std::string path = directory / "trace.json";
  {
    ReportFiles reports;
    reports.write(path, "old");
    {
      const test::FileLimit full(10);
      reports.write(path, std::string(100, 'x'));
      reports.write(path, std::string(100, 'y'));
      EXPECT_EQ(contents(path), "old");
      EXPECT_EQ(directory.names(), std::vector<std::string>{"trace.json"}) << "no half file";
    }
    reports.retry();
    EXPECT_EQ(contents(path), std::string(100, 'y'));
  }
}

TEST(ReportFiles, TryOnceMoreAtTheEnd) {
  const test::TemporaryDirectory directory;
  {
    const test::FileLimit full(0);
    ReportFiles reports;
    reports.write(directory / "a", "text");
  }
  EXPECT_EQ(directory.names(), std::vector<std::string>{});
  {
    ReportFiles reports;
    {
      const test::FileLimit full(0);
      reports.write(directory / "a", "text");
    }
  }
  EXPECT_EQ(contents(directory / "a"), "text");
}

}  // namespace
}  // namespace trireme::train
