// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/compare/compare.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../time/runs.hpp"
#include "trireme/base/error.hpp"
#include "trireme/schedule/passes/build.hpp"

namespace trireme::planner {
namespace {

using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

/// A row of a run on four ranks that did what the planner predicts, `factor` times as slowly.
std::string metrics_of(const config::RunConfig& config, const Machine& machine, double factor) {
  const Prediction p = predict(config, 4, machine);
  const model::Model model = model::build(config.model);
  const auto step = schedule::build_step(model, p.mesh.accumulation, schedule::policy_of(config, p.mesh));
  const Traffic traffic =
      replay_traffic(step, model, shard::Layout(model, p.mesh.shard), replay_options_of(config, p.mesh));
  const Memory& m = p.memory;
  return fmt::format(
      R"({{"step":1,"step_seconds":{0},"exposed_comm_seconds":{1},"data_seconds":0,"tokens_per_second":100,"tokens_per_second_per_rank":25.0,"memory_peak_bytes":{{"device":{{"parameters.sharded":{2},"activations":{3},"communication":4096,"total":1}},"host":{{}},"rss":1}},"comm_bytes":{{"shard":{{"all_gather":{4},"reduce_scatter":{5}}},"expert":{{"all_to_all":7}},"control":{{"sum":16}}}}}})"
      "\n",
      p.expected.seconds * factor, p.expected.exposed() * factor, m.parameters_sharded.value, m.activations.value,
      traffic.at("shard").at("all_gather").bytes.value, traffic.at("shard").at("reduce_scatter").bytes.value + 8);
}

TEST(Compare, PutsPredictedAndMeasuredSideBySide) {
  const config::RunConfig config = testing::small_run();
  const Machine machine = load_machine("h100");
  std::string trace = predicted_trace(predict_ops(config, 4, machine));
  const std::string first = "{\"traceEvents\":[";
  ASSERT_TRUE(trace.starts_with(first));
  trace.insert(first.size(), R"({"name":"gemm","cat":"kernel","ph":"X","pid":0,"tid":107,"ts":1,"dur":2},)");
  const MeasuredRun run = read_measured_run(metrics_of(config, machine, 2), trace, "run");
  EXPECT_EQ(run.ranks, 4);
  const std::string text = compare(config, run, machine);
  EXPECT_THAT(text, ContainsRegex("device parameters.sharded  .*  equal"));
  EXPECT_THAT(text, ContainsRegex("device activations .*  equal"));
  EXPECT_THAT(text, ContainsRegex("not predicted .*  4 KiB"));
  EXPECT_THAT(text, ContainsRegex("shard all_gather .*  equal"));
  EXPECT_THAT(text, ContainsRegex("shard reduce_scatter .*  -0.0%"));
  EXPECT_THAT(text, ContainsRegex("expert all_to_all +0 +7 +depends on the data"));
  EXPECT_THAT(text, ContainsRegex("step, median of 1 .* -50.0%"));
  EXPECT_THAT(text, ContainsRegex("forward b\\* +compute +12 .* (equal|[+-]0.0%)"));
  EXPECT_THAT(text, HasSubstr("by 1.000"));
  EXPECT_THAT(text, Not(AnyOf(HasSubstr("control"), HasSubstr("gemm"))));
}

TEST(Compare, MarksWhatTokensOfOtherRanksDecide) {
  config::RunConfig config = testing::small_run();
  config.model.architecture = "mixtral";
  config.model.experts = 4;
  config.model.experts_per_token = 2;
  config.mesh.expert = 2;
  const auto compared = [&] {
    MeasuredRun run = read_measured_run(metrics_of(config, load_machine("h100"), 1), "", "run");
    run.memory["device"]["activations"] += 4096;
    return compare(config, run, std::nullopt);
  };
  EXPECT_THAT(compared(), ContainsRegex("device activations .* -[0-9.]+%, depends on the data"));
  EXPECT_THAT(compared(), ContainsRegex("device sum of these peaks .*, depends on the data"));
  config.mesh.expert = 1;
  EXPECT_THAT(compared(), ContainsRegex("device activations .* -[0-9.]+% *\n"));
}

TEST(Compare, LeavesOutTimesWithoutAMachineAndOpsWithoutATrace) {
  const config::RunConfig config = testing::small_run();
  const MeasuredRun run = read_measured_run(metrics_of(config, load_machine("h100"), 1), "", "run");
  EXPECT_THAT(compare(config, run, std::nullopt), HasSubstr("add --machine"));
  EXPECT_THAT(compare(config, run, load_machine("h100")), HasSubstr("metrics.trace_steps"));
}

TEST(KindOfOp, ForgetsLayerSlotAndMicrobatch) {
  EXPECT_EQ(kind_of_op("forward b12 m3"), "forward b*");
  EXPECT_EQ(kind_of_op("forward b1.mlp m0"), "forward b*.mlp");
  EXPECT_EQ(kind_of_op("unshard embedding -> ring0.1"), "unshard embedding");
  EXPECT_EQ(kind_of_op("clip_norm"), "clip_norm");
  EXPECT_EQ(kind_of_op("forward b1 m0 ... backward b1 m0"), "several ops at once");
}

TEST(ReadMeasuredRun, RefusesWhatIsNoRun) {
  for (const char* metrics : {"", "{\"step\":1,\"eval_loss\":2}\n", "not json\n", "{\"step_seconds\":1}\n"})
    EXPECT_THROW((void)read_measured_run(metrics, "", "run"), ConfigError) << metrics;
  const std::string row = metrics_of(testing::small_run(), load_machine("h100"), 1);
  EXPECT_THROW((void)read_measured_run(row, "{}", "run"), ConfigError);
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  EXPECT_THROW((void)read_measured_run(row, R"({"traceEvents":)" + deep + "}", "run"), ConfigError);
}

TEST(ReadMeasuredRun, RefusesADamagedRowOrEventByItsPlaceAndKey) {
  const auto refusal = [](const std::string& metrics, const std::string& trace) -> std::string {
    try {
      (void)read_measured_run(metrics, trace, "run");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  const std::string row = metrics_of(testing::small_run(), load_machine("h100"), 1);
  EXPECT_THAT(refusal(row + "{\"step\":\n", ""),
              HasSubstr("run: not the metrics or the trace of a run: line 2 of metrics.jsonl: no JSON"));
  EXPECT_THAT(refusal(row + "[1]\n", ""), HasSubstr("line 2 of metrics.jsonl: expected a JSON object"));
  EXPECT_THAT(refusal(row + "{\"step_seconds\":\"x\"}\n", ""),
              HasSubstr("line 2 of metrics.jsonl: \"tokens_per_second_per_rank\" is missing; expected a number"));
  std::string text = row, zero = row;
  text.replace(row.find("\"data_seconds\":0"), 16, "\"data_seconds\":\"\"");
  zero.replace(row.find("25.0"), 4, "0.00");
  EXPECT_THAT(refusal(text, ""), HasSubstr("\"data_seconds\" is \"\"; expected a number"));
  EXPECT_THAT(refusal(zero, ""), HasSubstr("\"tokens_per_second_per_rank\" is 0"));
  EXPECT_THAT(refusal(row, "{}"), HasSubstr("the trace: \"traceEvents\" is missing; expected a list"));
  EXPECT_THAT(refusal(row, R"({"traceEvents":[3]})"), HasSubstr("event 1 of the trace: expected a JSON object"));
  EXPECT_THAT(refusal(row, R"({"traceEvents":[{"ph":"M","name":"thread_name","args":{"name":"x"}}]})"),
              HasSubstr("event 1 of the trace: \"tid\""));
  EXPECT_THAT(refusal(row, R"({"traceEvents":[{"ph":"X","name":"a","tid":1,"args":{"step":1}}]})"),
              HasSubstr("\"dur\" is missing"));
  for (const std::string& damaged : {refusal(row + "x\n", ""), refusal(row, "x")})
    EXPECT_THAT(damaged, Not(HasSubstr("json.exception")));
}

TEST(ReadMeasuredRun, TakesTheTrafficThatWasLastWritten) {
  const std::string rows =
      metrics_of(testing::small_run(), load_machine("h100"), 1) +
      R"({"step_seconds":1,"exposed_comm_seconds":0,"data_seconds":0,"tokens_per_second":8,"tokens_per_second_per_rank":4,"memory_peak_bytes":{}})"
      "\n";
  const MeasuredRun run = read_measured_run(rows, "", "run");
  EXPECT_EQ(run.ranks, 2);
  EXPECT_EQ(run.bytes.at("shard").size(), 2U);
}

TEST(ReadMeasuredRun, TakesMediansAfterTheFirstRows) {
  std::string rows;
  for (const double seconds : {90., 80., 70., 1., 3., 2., 5.})
    rows += fmt::format(
        R"({{"step_seconds":{},"exposed_comm_seconds":0,"data_seconds":0,"tokens_per_second":8,"tokens_per_second_per_rank":4,"memory_peak_bytes":{{}},"comm_bytes":{{}}}})"
        "\n",
        seconds);
  const MeasuredRun run = read_measured_run(rows, "", "run");
  EXPECT_EQ(run.rows, 4);
  EXPECT_EQ(run.step_seconds, 2.5);
}

}  // namespace
}  // namespace trireme::planner
