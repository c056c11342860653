// SPDX-License-Identifier: Apache-2.0
#include "train/record/event_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <functional>
#include <limits>

#include "support/resource_limit.hpp"
#include "support/temporary_directory.hpp"
#include "train/record/event_reader.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/unix_time.hpp"

namespace trireme::train {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

std::string from_hex(const std::string& text) {
  std::string bytes;
  for (std::size_t at = 0; at < text.size(); at += 2)
    bytes += static_cast<char>(std::stoi(text.substr(at, 2), nullptr, 16));
  return bytes;
}

// Bytes of tensorboard 2.21.0 for Event(wall_time=1500000000.25, step=300) with loss/train = 2.5 and optim/lr = nan,
// from protobuf's SerializeToString and RecordWriter.
TEST(EventRecord, HasTheBytesThatTensorBoardWrites) {
  const std::vector<Scalar> scalars{{"loss/train", 2.5}, {"optim/lr", nan}};
  EXPECT_EQ(
      event_record(1500000000.25, 300, scalars),
      from_hex("3200000000000000241956ec"
               "09000010c00b5ad64110ac022a240a110a0a6c6f73732f747261696e15000020400a0f0a086f7074696d2f6c72150000c07f"
               "018a74ea"));
}

TEST(EventRecord, IsReadBackWithItsTimeStepAndValues) {
  const std::string long_tag(300, 't');
  const std::vector<Scalar> scalars{{"loss/train", 1.0 / 3},
                                    {long_tag, -0.0},
                                    {"infinite", std::numeric_limits<double>::infinity()},
                                    {"beyond a float", -1e300}};
  for (const std::int64_t step : {std::int64_t{1}, std::int64_t{127}, std::int64_t{128}, (std::int64_t{1} << 40) + 1}) {
    const std::vector<ReadEvent> events = read_events(event_record(1.7e9 + 1.0 / 64, step, scalars));
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(events[0].wall_time, 1.7e9 + 1.0 / 64);
    EXPECT_EQ(events[0].step, step);
    ASSERT_EQ(events[0].scalars.size(), 4U);
    EXPECT_EQ(events[0].scalars.at("loss/train"), static_cast<float>(1.0 / 3));
    EXPECT_TRUE(std::signbit(events[0].scalars.at(long_tag)));
    EXPECT_EQ(events[0].scalars.at("infinite"), std::numeric_limits<float>::infinity());
    EXPECT_EQ(events[0].scalars.at("beyond a float"), -std::numeric_limits<float>::infinity());
  }
}

TEST(EventRecord, HasAChecksumOverEveryBit) {
  const std::string good = event_record(1.7e9, 7, std::vector<Scalar>{{"loss/train", 2.5}});
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    EXPECT_THROW((void)read_events(bad), std::runtime_error) << "bit " << bit;
  }
}

class EventFileTest : public testing::Test {
 protected:
  /// A file with `loss` at the steps from `keep_steps` + 1 to `last`.
  std::string write(std::int64_t keep_steps, std::int64_t last, double loss) const {
    EventFile file(directory_, keep_steps);
    for (std::int64_t step = keep_steps + 1; step <= last; ++step)
      file.append(step, std::vector<Scalar>{{"loss/train", loss}});
    return file.path();
  }

  const test::TemporaryDirectory root_;
  const std::string directory_ = root_ / "run/tensorboard";
};

TEST_F(EventFileTest, BeginsWithItsVersionAndTheStepThatFollows) {
  const double before = unix_seconds();
  const EventFile file(directory_, 40);
  const std::vector<ReadEvent> events = read_events(bytes_of(file.path()));
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_FALSE(events[0].start);
  EXPECT_TRUE(events[1].start);
  EXPECT_EQ(events[1].step, 41);
  for (const ReadEvent& event : events) {
    EXPECT_GE(event.wall_time, before);
    EXPECT_LT(event.wall_time, before + 60);
  }
}

TEST_F(EventFileTest, IsNamedAsTensorBoardExpectsIt) {
  const EventFile file(directory_);
  EXPECT_THAT(std::filesystem::path(file.path()).filename().string(),
              MatchesRegex("events\\.out\\.tfevents\\.[0-9]{10}\\..+\\." + std::to_string(::getpid()) + "\\.0"));
}

TEST_F(EventFileTest, HasEachEventBeforeAppendReturns) {
  EventFile file(directory_);
  for (std::int64_t step = 1; step <= 3; ++step) {
    file.append(step, std::vector<Scalar>{{"loss/train", 1.0 / static_cast<double>(step)}});
    const std::vector<ReadEvent> events = read_events(bytes_of(file.path()));
    ASSERT_EQ(events.size(), static_cast<std::size_t>(2 + step));
    EXPECT_EQ(events.back().step, step);
    EXPECT_EQ(events.back().scalars.at("loss/train"), 1.0F / static_cast<float>(step));
  }
}

TEST_F(EventFileTest, SupersedesTheStepsThatTheRunRepeats) {
  write(0, 12, 1);
  write(8, 11, 2);
  write(10, 14, 3);
  EXPECT_EQ(sorted_files(directory_).size(), 3U);
  const ReadCurve curve = read_curves(directory_).at("loss/train");
  ASSERT_EQ(curve.size(), 14U);
  for (std::int64_t step = 1; step <= 14; ++step) {
    const auto& [read_step, loss] = curve[static_cast<std::size_t>(step - 1)];
    EXPECT_EQ(read_step, step);
    EXPECT_EQ(loss, step <= 8 ? 1 : step <= 10 ? 2 : 3) << step;
  }
}

// The end of a killed run's file: whatever is left of it, what comes after it stands in another file.
TEST_F(EventFileTest, LosesOnlyTheEventThatAKillCutOff) {
  const std::string first = write(0, 3, 1);
  const std::string whole = bytes_of(first);
  const std::size_t two_steps = whole.size() - event_record(0, 3, std::vector<Scalar>{{"loss/train", 1}}).size();
  const std::string second = write(2, 4, 2);
  for (std::size_t size = whole.size() - 1; size >= two_steps; --size) {
    std::filesystem::resize_file(first, size);
    EXPECT_EQ(read_curves(directory_).at("loss/train"), (ReadCurve{{1, 1}, {2, 1}, {3, 2}, {4, 2}})) << size;
  }
}

// The next node's clock may be behind.
TEST_F(EventFileTest, SortsBehindEveryEarlierFile) {
  std::filesystem::create_directories(directory_);
  for (const char* name : {"events.out.tfevents.4000000000.node9.77.0", "events.out.tfevents.3999999999.zzz.99.9",
                           "events.out.tfevents.next", "events.out.tfevents.99999999999999999999.node1.1.0"})
    std::ofstream(directory_ + "/" + name) << "";
  const EventFile file(directory_, 5);
  EXPECT_THAT(file.path(), HasSubstr("tfevents.4000000001."));
}

TEST_F(EventFileTest, BeginsAnewWithoutTheEventsOfAnEarlierRun) {
  const std::string earlier = write(0, 20, 1);
  std::ofstream(directory_ + "/notes.txt") << "mine";
  std::filesystem::rename(earlier, directory_ + "/events.out.tfevents.1000000000.gone.1.0");
  const std::string now = write(0, 2, 2);
  EXPECT_EQ(sorted_files(directory_), (std::vector<std::filesystem::path>{now, directory_ + "/notes.txt"}));
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const WriteError& error) {
    return error.what();
  }
  return "";
}

TEST_F(EventFileTest, SuggestsARemedyWhereItCannotBegin) {
  std::filesystem::create_directories(root_ / "run");
  std::ofstream(directory_) << "a file";
  EXPECT_THAT(message_of([&] { EventFile file(directory_); }),
              testing::AllOf(HasSubstr(directory_), HasSubstr("run.output"), HasSubstr("metrics.tensorboard")));
}

TEST_F(EventFileTest, CatchesUpWhenThereIsSpaceAgain) {
  EventFile file(directory_);
  std::vector<Scalar> scalars;
  for (int n = 0; n < 100; ++n) scalars.push_back({"curve " + std::to_string(n), 1});
  {
    const test::FileLimit full(500);
    for (const std::int64_t step : {1, 2}) file.append(step, scalars);
    EXPECT_EQ(std::filesystem::file_size(file.path()), 500U);
    EXPECT_EQ(read_events(bytes_of(file.path())).size(), 2U) << "what was written before is whole";
  }
  file.append(3, scalars);
  const std::vector<ReadEvent> events = read_events(bytes_of(file.path()));
  ASSERT_EQ(events.size(), 5U);
  for (std::size_t step = 1; step <= 3; ++step) EXPECT_EQ(events[1 + step].step, step);
}

}  // namespace
}  // namespace trireme::train
