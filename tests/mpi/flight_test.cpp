// SPDX-License-Identifier: Apache-2.0
#include "trireme/mpi/flight.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <thread>

#include "support/temporary_directory.hpp"
#include "trireme/mpi/topology.hpp"

namespace trireme::mpi {
namespace {

TEST(FlightRecorder, KeepsTheLastOperationsOfEachLaneWithTheirNumbers) {
  FlightRecorder recorder(3);
  FlightLane& lane = recorder.add_lane("shard/gather");
  for (int i = 0; i < 5; ++i) {
    lane.begin("all_gather", {i});
    lane.finish();
  }
  const std::vector<Operation> kept = lane.operations();
  ASSERT_EQ(kept.size(), 3U);
  EXPECT_EQ(kept.front().sequence, 3U);
  EXPECT_EQ(kept.back().sequence, 5U);
  EXPECT_EQ(kept.back().bytes, Bytes{4});
  EXPECT_TRUE(kept.back().finished.has_value());
}

TEST(FlightRecorder, RecordsOperationsInFlightOnEachLane) {
  FlightRecorder recorder;
  FlightLane& gather = recorder.add_lane("shard/gather");
  FlightLane& reduce = recorder.add_lane("shard/reduce");
  recorder.add_lane("tensor/compute");
  gather.begin("all_gather", {8});
  reduce.begin("reduce_scatter", {1 << 20});
  gather.finish();
  const std::vector<Operation> running = recorder.in_flight();
  ASSERT_EQ(running.size(), 1U);
  EXPECT_EQ(to_text(running.front()), "reduce_scatter #1 (" + to_text(Bytes{1 << 20}) + ") on shard/reduce");
}

TEST(FlightRecorder, NotesWhatItsThreadDoes) {
  FlightRecorder recorder;
  FlightLane& lane = recorder.add_lane("shard/gather");
  doing("unshard b3 -> ring0.1, step 5");
  EXPECT_THAT(to_text(lane.begin("all_gather", {8})), testing::EndsWith(R"(for "unshard b3 -> ring0.1, step 5")"));
  std::thread([&lane] { EXPECT_EQ(lane.begin("all_gather", {8}).task, ""); }).join();
  doing("");
  EXPECT_EQ(to_text(lane.begin("all_gather", {8})), "all_gather #3 (8 B) on shard/gather");
}

TEST(FlightRecorder, DumpsAllLanesAsJson) {
  FlightRecorder recorder;
  FlightLane& lane = recorder.add_lane("shard/gather");
  lane.begin("all_gather", {8});
  lane.finish();
  doing("clip_norm");
  lane.begin("barrier", {0});
  doing("");
  const trireme::test::TemporaryDirectory directory;
  const std::string path = directory / "hang.json";
  ASSERT_TRUE(recorder.dump(path, "a \"test\""));
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(text.find(R"("reason": "a \"test\"")"), std::string::npos) << text;
  EXPECT_NE(text.find(R"("operation": "all_gather", "sequence": 1, "bytes": 8)"), std::string::npos) << text;
  EXPECT_NE(text.find(R"("operation": "barrier", "sequence": 2, "bytes": 0, "task": "clip_norm")"), std::string::npos)
      << text;
  EXPECT_NE(text.find("\"node\": \"" + hostname() + "\""), std::string::npos) << text;
  EXPECT_NE(text.find(R"("finished_seconds_ago": null)"), std::string::npos) << text;
  EXPECT_FALSE(recorder.dump("/no/such/directory/hang.json", "x"));
}

}  // namespace
}  // namespace trireme::mpi
