// SPDX-License-Identifier: Apache-2.0
#include "trireme/timeline/trace.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "trireme/schedule/passes/build.hpp"

namespace trireme::timeline {
namespace {

using nlohmann::json;
using std::chrono::microseconds;

class ChromeTrace : public testing::Test {
 protected:
  /// A span a schedule's op, each a millisecond after the one before, in reverse order; the first one 7 ms after the
  /// origin.
  [[nodiscard]] json trace(int rank) const {
    const auto origin = timeline::Clock::now(), start = origin + microseconds(7000);
    std::vector<timeline::Span> spans;
    for (int op = static_cast<int>(schedule_.ops.size()) - 1; op >= 0; --op)
      spans.push_back(
          {4, op, op, start + op * microseconds(1000), start + op * microseconds(1000) + microseconds(250)});
    return json::parse(chrome_trace(spans, schedule_, model_, {rank, "rank 3 on node7", origin}));
  }

  model::Model model_ = model::build({.vocab_size = 17,
                                      .hidden_size = 8,
                                      .intermediate_size = 12,
                                      .layers = 2,
                                      .heads = 2,
                                      .kv_heads = 2,
                                      .head_dim = 4});
  schedule::Schedule schedule_ = schedule::build_step(model_, 2, {});
};

TEST_F(ChromeTrace, HasARowForEachLaneAndASpanForEachOp) {
  const json events = trace(3)["traceEvents"];
  std::set<std::string> rows;
  std::set<int> used;
  std::size_t spans = 0, processes = 0;
  for (const json& event : events) {
    EXPECT_EQ(event["pid"], 3);
    if (event["name"] == "process_name") {
      ++processes;
      EXPECT_EQ(event["args"]["name"], "rank 3 on node7");
    }
    if (event["name"] == "thread_name") rows.insert(event["args"]["name"].get<std::string>());
    if (event["ph"] != "X") continue;
    ++spans;
    used.insert(event["tid"].get<int>());
    EXPECT_EQ(event["args"]["step"], 5);  // finished steps count from 1
    EXPECT_DOUBLE_EQ(event["dur"].get<double>(), 250);
  }
  EXPECT_EQ(processes, 1U);
  EXPECT_EQ(spans, schedule_.ops.size());
  EXPECT_EQ(rows, (std::set<std::string>{"compute", "gather", "reduce"}));
  EXPECT_EQ(used.size(), rows.size());
}

TEST_F(ChromeTrace, HasACategoryOnEveryEventAndTheRankAtTheTop) {
  const json whole = trace(3);
  EXPECT_EQ(whole["distributedInfo"]["rank"], 3);
  std::map<std::string, std::set<std::string>> categories;
  for (const json& event : whole["traceEvents"])
    if (event["ph"] != "M") categories[event["ph"]].insert(event.at("cat").get<std::string>());
  EXPECT_EQ(categories["X"], (std::set<std::string>{"compute", "communication"}));
  EXPECT_EQ(categories["C"], (std::set<std::string>{"memory"}));
}

TEST_F(ChromeTrace, CountsMemoryWhereItChanges) {
  const auto origin = Clock::now();
  std::vector<Span> spans;
  for (int i = 0; i < 6; ++i)
    spans.push_back({0, i, i, origin + microseconds(10 * i), origin + microseconds(10 * i + 5)});
  const auto device = static_cast<std::size_t>(device::Space::device);
  for (const int i : {2, 3}) spans[static_cast<std::size_t>(i)].memory[device].current[device::Category::data] = {64};
  std::ranges::reverse(spans);
  std::map<std::string, std::vector<double>> times;
  const json whole = json::parse(chrome_trace(spans, schedule_, model_, {0, "", origin}));
  for (const json& event : whole["traceEvents"])
    if (event["ph"] == "C") times[event["name"]].push_back(event["ts"].get<double>());
  EXPECT_EQ(times["device memory"], (std::vector<double>{5, 25, 45})) << "in the order of time";
  EXPECT_EQ(times["host memory"], (std::vector<double>{5})) << "it stays 0";
}

TEST_F(ChromeTrace, CountsFromAnOriginThatAllRanksShare) {
  double least = 1e9;
  const json whole = trace(0);
  for (const json& event : whole["traceEvents"])
    if (event["ph"] == "X") least = std::min(least, event["ts"].get<double>());
  EXPECT_DOUBLE_EQ(least, 7000);
}

/// Two ranks of a pipeline, four apart, as ranks 1 and 5 of eight.
TEST_F(ChromeTrace, HasAnArrowFromEverySendToItsReceive) {
  using schedule::Phase;
  const auto origin = Clock::now();
  const auto span = [&](std::int64_t step, int op, int from, int to) {
    return Span{step, op, op, origin + microseconds(from), origin + microseconds(to)};
  };
  schedule::Schedule first, second;
  first.ops = {schedule::Send{.edge = {0}, .microbatch = {1}, .phase = Phase::forward, .slot = {0}, .peer = 1},
               schedule::Receive{.edge = {0}, .microbatch = {1}, .phase = Phase::backward, .slot = {0}, .peer = 1}};
  second.ops = {schedule::Receive{.edge = {0}, .microbatch = {1}, .phase = Phase::forward, .slot = {0}, .peer = 0},
                schedule::Send{.edge = {0}, .microbatch = {1}, .phase = Phase::backward, .slot = {0}, .peer = 0}};
  const std::vector<Span> of_first{span(3, 0, 10, 30), span(3, 1, 40, 90), span(4, 0, 100, 130)};
  const std::vector<Span> of_second{span(3, 0, 5, 29), span(3, 1, 60, 91), span(4, 0, 95, 131)};
  const auto arrows = [&](const std::vector<Span>& spans, const schedule::Schedule& schedule, int rank) {
    std::map<std::string, std::vector<json>> by_end;
    const json whole = json::parse(chrome_trace(
        spans, schedule, model_,
        {.rank = 1 + 4 * rank, .name = "", .origin = origin, .pipeline_rank = rank, .pipeline_stride = 4}));
    for (const json& event : whole["traceEvents"])
      if (event["ph"] == "s" || event["ph"] == "f") by_end[event["ph"]].push_back(event);
    return by_end;
  };
  auto there = arrows(of_first, first, 0), back = arrows(of_second, second, 1);
  ASSERT_EQ(there["s"].size(), 2U);
  ASSERT_EQ(back["f"].size(), 2U);
  const auto meet = [](const json& sent, const json& received) {
    return sent["id"] == received["id"] && sent["name"] == received["name"] && sent["cat"] == received["cat"];
  };
  EXPECT_TRUE(meet(there["s"][0], back["f"][0]));
  EXPECT_TRUE(meet(there["s"][1], back["f"][1])) << "of the next step";
  EXPECT_TRUE(meet(back["s"].at(0), there["f"].at(0))) << "of the gradient";
  EXPECT_FALSE(meet(there["s"][0], back["f"][1]));
  EXPECT_EQ(there["s"][0]["name"], "e0 m1");
  EXPECT_EQ(back["s"][0]["name"], "e0 m1 gradient");
  EXPECT_EQ(there["s"][0]["ts"], 10);
  EXPECT_GT(back["f"][0]["ts"].get<double>(), 28);
  EXPECT_LT(back["f"][0]["ts"].get<double>(), 29) << "within its span, to which a viewer binds it";
  EXPECT_EQ(back["f"][0]["bp"], "e");
  EXPECT_EQ(there["s"][0]["tid"], static_cast<int>(schedule::Lane::send));
  // The same messages of another pipeline of the mesh are others.
  const json other = json::parse(
      chrome_trace(of_first, first, model_,
                   {.rank = 2, .name = "", .origin = origin, .pipeline_rank = 0, .pipeline_stride = 4}))["traceEvents"];
  for (const json& event : other)
    if (event["ph"] == "s") {
      EXPECT_NE(event["id"], there["s"][0]["id"]);
    }
}

TEST_F(ChromeTrace, HasTheGpusKernelsOnTheSameAxis) {
  const auto start = Clock::now();
  const std::vector<Span> spans{{0, 0, 0, start, start + microseconds(40)}};
  const std::vector<Kernel> kernels{{"before", 7, start - microseconds(3), start - microseconds(1)},
                                    {"gemm", 7, start + microseconds(5), start + microseconds(25)},
                                    {"nccl", 20, start + microseconds(6), start + microseconds(9)}};
  const json whole = json::parse(chrome_trace(spans, schedule_, model_, {0, "rank 0", start}, kernels));
  std::map<std::string, json> by_name;
  std::set<std::string> rows;
  for (const json& event : whole["traceEvents"]) {
    if (event["ph"] == "X") by_name[event["name"].get<std::string>()] = event;
    if (event["name"] == "thread_name") rows.insert(event["args"]["name"].get<std::string>());
  }
  EXPECT_FALSE(by_name.contains("before")) << "of the step before the first that is traced";
  EXPECT_DOUBLE_EQ(by_name.at("gemm")["ts"].get<double>(), 5);
  EXPECT_DOUBLE_EQ(by_name.at("gemm")["dur"].get<double>(), 20);
  EXPECT_EQ(by_name.at("gemm")["cat"], "kernel");
  EXPECT_EQ(by_name.at("gemm")["args"]["stream"], 7);
  EXPECT_NE(by_name.at("gemm")["tid"], by_name.at("nccl")["tid"]);
  EXPECT_TRUE(rows.contains("GPU stream 7") && rows.contains("GPU stream 20"));
}

TEST_F(ChromeTrace, IsValidWithoutSpans) {
  EXPECT_TRUE(json::parse(chrome_trace({}, schedule_, model_, {})).contains("traceEvents"));
}

}  // namespace
}  // namespace trireme::timeline
