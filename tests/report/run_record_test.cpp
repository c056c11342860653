// SPDX-License-Identifier: Apache-2.0
#include "trireme/report/run_record.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "report/facts.hpp"
#include "trireme/base/error.hpp"

namespace trireme::report {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* metrics =
    R"({"step":1,"loss":5.56914201273468,"flop_rule":"x","device":"a GPU","version":"1.2","skipped":false,"mfu":null,"memory_peak_bytes":{"device":{"total":96},"rss":7},"comm_bytes":{"shard":{"all_gather":40}},"comm_calls":{"shard":{"all_gather":4}}})"
    "\n"
    R"({"step":2,"loss":null,"skipped":true,"mfu":null,"memory_peak_bytes":{"device":{"total":100},"rss":7}})"
    "\n"
    R"({"step":2,"eval_loss":5.25,"eval_tokens":64})"
    "\n"
    R"({"step":3,"loss":4.5,"flop_rule":"x","skipped":false,"mfu":0.25,"comm_bytes":{"shard":{"all_gather":80}},"comm_calls":{"shard":{"all_gather":8}}})"
    "\n"
    R"({"step":4,"los)";

/// The two numbers of each point.
std::vector<std::pair<double, double>> numbers(const RunRecord& run, const std::string& key) {
  std::vector<std::pair<double, double>> list;
  for (const Point& point : run.series.at(key)) list.emplace_back(point.x, point.y);
  return list;
}

std::string mistake(auto&& read) {
  try {
    read();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "none";
}

TEST(ReadMetrics, CountsSpikesApartFromNonFiniteSteps) {
  RunRecord run;
  read_metrics(run,
               R"({"step":1,"loss":9.5,"grad_norm":80.5,"target_tokens":64,"skipped":true})"
               "\n"
               R"({"step":2,"loss":9.5,"grad_norm":null,"target_tokens":64,"skipped":true})"
               "\n",
               "metrics.jsonl");
  EXPECT_EQ(run.spikes, 1);
  EXPECT_EQ(run.skipped, 1);
  EXPECT_THAT(warnings(run), testing::Contains(HasSubstr("1 steps were skipped as spikes")));
  EXPECT_THAT(warnings(run),
              testing::Contains(HasSubstr("1 steps were skipped: loss or gradient norm was not finite")));
}

TEST(ReadMetrics, KeepsEveryFiniteNumberByItsKey) {
  RunRecord run;
  read_metrics(run, metrics, "metrics.jsonl");
  EXPECT_THAT(numbers(run, "loss"), ElementsAre(std::pair(1., 5.56914201273468), std::pair(3., 4.5)));
  EXPECT_THAT(numbers(run, "eval_loss"), ElementsAre(std::pair(2., 5.25)));
  EXPECT_EQ(run.device + ", " + run.version, "a GPU, 1.2");
  EXPECT_THAT(run.skipped_at, ElementsAre(2));
  EXPECT_THAT(numbers(run, "mfu"), ElementsAre(std::pair(3., 0.25)));
  EXPECT_THAT(numbers(run, "memory_peak_bytes/device/total"), ElementsAre(std::pair(1., 96.), std::pair(2., 100.)));
  EXPECT_EQ(run.skipped, 1);
  EXPECT_EQ(run.not_finite, 1);
  EXPECT_THAT(run.starts, ElementsAre(3.)) << "a start writes what seldom changes";
  EXPECT_EQ(run.bytes.at("shard").at("all_gather"), 80);
  EXPECT_EQ(run.calls.at("shard").at("all_gather"), 8);
}

TEST(ReadMetrics, SeparatesStepsWithoutTargetsFromNonFiniteOnes) {
  RunRecord run;
  read_metrics(run,
               R"({"step":1,"loss":null,"target_tokens":0,"skipped":true})"
               "\n"
               R"({"step":2,"loss":null,"target_tokens":64,"skipped":true})"
               "\n",
               "metrics.jsonl");
  EXPECT_EQ(run.without_targets, 1);
  EXPECT_EQ(run.skipped, 1);
  EXPECT_EQ(run.not_finite, 1);
  EXPECT_THAT(warnings(run), testing::Contains(HasSubstr("1 steps were skipped: no target counted")));
}

TEST(ReadMetrics, RefusesWhatIsNoRun) {
  RunRecord run;
  EXPECT_THAT(mistake([&] { read_metrics(run, "", "out/metrics.jsonl"); }),
              HasSubstr("out/metrics.jsonl: holds no step"));
  EXPECT_THAT(mistake([&] { read_metrics(run, "{\"step\":1,\"eval_loss\":2}\n", "m"); }), HasSubstr("holds no step"));
  for (const char* text : {"text\nmore\n", "{\"loss\":1}\n", "[1]\n", "{\"step\":\"a\",\"loss\":1}\n"})
    EXPECT_THAT(mistake([&] { read_metrics(run, text, "m"); }), HasSubstr("m: not the metrics of a run")) << text;
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  EXPECT_THAT(mistake([&] { read_metrics(run, R"({"step":1,"loss":)" + deep + "}\n", "m"); }),
              HasSubstr("m: not the file of a run: its JSON nests too deep"));
}

std::string trace_of(int rank, const char* ts) {
  const std::string pid = "\"pid\":" + std::to_string(rank);
  const std::string name = "rank " + std::to_string(rank) + " on n1";
  return R"({"traceEvents":[{"name":"process_name","ph":"M",)" + pid + R"(,"args":{"name":")" + name +
         R"("}},{"name":"thread_name","ph":"M",)" + pid + R"(,"tid":1,"args":{"name":"gather"}},)" +
         R"({"name":"gemm","cat":"kernel","ph":"X",)" + pid + R"(,"tid":107,"ts":1,"dur":2},)" +
         R"({"name":"unshard b0","ph":"X",)" + pid + R"(,"tid":1,"ts":5,"dur":1,"args":{"step":3,"op":0}},)" +
         R"({"name":"unshard b0","ph":"X",)" + pid + R"(,"tid":1,"ts":)" + ts +
         R"(,"dur":250,"args":{"step":4,"op":0}},)" + R"({"name":"device memory","ph":"C",)" + pid +
         R"(,"ts":1100,"args":{"activations":64}},)" + R"({"name":"device memory","ph":"C",)" + pid +
         R"(,"ts":6,"args":{"activations":1}}]})";
}

TEST(ReadTrace, KeepsTheLastStepOfEachRankAndTheMemoryOfTheFirst) {
  RunRecord run;
  read_trace(run, trace_of(0, "1000"), "trace-rank0.json", true);
  read_trace(run, trace_of(1, "1100"), "trace-rank1.json", false);
  ASSERT_TRUE(run.trace);
  EXPECT_EQ(run.trace->step, 4);
  ASSERT_THAT(run.trace->spans,
              testing::UnorderedElementsAre(testing::Key("rank 0 on n1"), testing::Key("rank 1 on n1")));
  const std::vector<Span>& spans = run.trace->spans["rank 1 on n1"];
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_EQ(spans[0].lane, "gather");
  EXPECT_DOUBLE_EQ(spans[0].begin, 1100e-6);
  EXPECT_DOUBLE_EQ(spans[0].end, 1350e-6);
  ASSERT_EQ(run.trace->memory["activations"].size(), 1U);
  EXPECT_EQ(run.trace->memory["activations"][0].y, 64);
  EXPECT_THAT(mistake([&] { read_trace(run, "{}", "trace-rank0.json", true); }), HasSubstr("not the trace of a run"));
}

TEST(ReadRun, NeedsMetricsAlone) {
  const auto root = std::filesystem::temp_directory_path() / ("trireme-report-test-" + std::to_string(::getpid()));
  EXPECT_THAT(mistake([&] { (void)read_run(root.string()); }),
              HasSubstr("holds no metrics.jsonl; give the run.output of a run"));
}

TEST(ReadMetrics, NamesLineKeyAndWhatIsExpected) {
  RunRecord run;
  const std::string good = "{\"step\":1,\"loss\":2}\n";
  for (const auto& [line, said] :
       {std::pair{"{\"step\":2,\"lo\x1b", "line 2: no JSON: \"{\\\"step\\\":2,\\\"lo\\u001b\""},
        std::pair{"[1]", "line 2: expected a JSON object"},
        std::pair{"{\"loss\":2}", "line 2: \"step\" is missing; expected a number"},
        std::pair{"{\"step\":\"two\"}", "line 2: \"step\" is \"two\"; expected a number"},
        std::pair{"{\"step\":2,\"loss\":1,\"comm_bytes\":7}", "\"comm_bytes\" is 7; expected an object"}}) {
    const std::string message = mistake([&] { read_metrics(run, good + line + "\n", "m"); });
    EXPECT_THAT(message, HasSubstr("m: not the metrics of a run: ")) << line;
    EXPECT_THAT(message, HasSubstr(said));
    EXPECT_THAT(message, testing::Not(HasSubstr("json.exception")));
  }
  EXPECT_THAT(mistake([&] { read_step_times(run, R"({"ranks":[{"name":"rank 0"}]})", "s"); }),
              HasSubstr("s: not the step times of a run: \"median_seconds\" is missing; expected a number"));
  EXPECT_THAT(mistake([&] { read_trace(run, R"({"traceEvents":[{"ph":"X"}]})", "t", true); }),
              HasSubstr("t: not the trace of a run: event 0 of traceEvents: \"name\" is missing; expected a text"));
}

}  // namespace
}  // namespace trireme::report

// Fault, files: a damaged line of metrics, trace or step times -> file, line or event, key, expected value
