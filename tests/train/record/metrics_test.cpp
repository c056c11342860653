// SPDX-License-Identifier: Apache-2.0
#include "train/record/metrics.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "support/fuzz.hpp"
#include "support/resource_limit.hpp"
#include "support/temporary_directory.hpp"
#include "trireme/base/error.hpp"

namespace trireme::train::metrics_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::set<std::string> keys(const json& object) {
  std::set<std::string> names;
  for (const auto& [key, value] : object.items()) names.insert(key);
  return names;
}

StepRow sample_row() {
  StepRow row{.step = 3, .loss = 0.1 + 0.2, .grad_norm = 1.0 / 3, .lr = 3e-4, .tokens = std::int64_t{1} << 40};
  row.traffic["shard"]["all_gather"] = {.bytes = {96}, .calls = 4};
  row.traffic["control"]["sum"] = {.bytes = {8}, .calls = 1};
  return row;
}

TEST(StepRowAsJson, HasEveryKeyOfTheContract) {
  const json row = json::parse(to_json(sample_row()));
  for (const char* key : {"step",
                          "time",
                          "loss",
                          "grad_norm",
                          "lr",
                          "tokens",
                          "target_tokens",
                          "step_seconds",
                          "data_seconds",
                          "exposed_comm_seconds",
                          "tokens_per_second",
                          "tokens_per_second_per_rank",
                          "mfu",
                          "flop_rule",
                          "device",
                          "version",
                          "restart_count",
                          "goodput",
                          "memory_peak_bytes",
                          "comm_bytes",
                          "comm_calls",
                          "skipped"})
    EXPECT_TRUE(row.contains(key)) << key;
  EXPECT_FALSE(row.contains("eval_loss"));
  EXPECT_FALSE(row.contains("z_loss"));
  EXPECT_EQ(keys(row["memory_peak_bytes"]), (std::set<std::string>{"device", "host", "rss"}));
  for (const char* category : {"parameters.sharded", "parameters.unsharded", "gradients.sharded", "gradients.unsharded",
                               "optimizer", "activations", "workspace", "communication", "data", "other"})
    for (const char* space : {"device", "host"})
      EXPECT_TRUE(row["memory_peak_bytes"][space].contains(category)) << space << " " << category;
  EXPECT_EQ(row["comm_bytes"]["shard"]["all_gather"], 96);
  EXPECT_EQ(row["comm_calls"]["shard"]["all_gather"], 4);
  EXPECT_EQ(row["comm_calls"]["control"]["sum"], 1);
}

TEST(StepRowAsJson, HasThePipelinesWaitsWhereThereIsOne) {
  StepRow row = sample_row();
  const json without = json::parse(to_json(row));
  EXPECT_FALSE(without.contains("pipeline_wait_seconds") || without.contains("pipeline_bubble"));
  row.pipeline_wait_seconds = 0.25;
  row.pipeline_bubble = 0.125;
  const json with = json::parse(to_json(row));
  EXPECT_EQ(with["pipeline_wait_seconds"], 0.25);
  EXPECT_EQ(with["pipeline_bubble"], 0.125);
}

TEST(StepRowAsJson, HasThePackingOfPackedDataOnce) {
  StepRow row = sample_row();
  const json without = json::parse(to_json(row));
  EXPECT_FALSE(without.contains("packing") || without.contains("padding_tokens"));
  row.padding_tokens = 5;
  row.packing = {.documents = 10, .rows = 4, .tokens = 30, .padding = 10, .cut = 1, .concatenated_cut = 4};
  LastWritten last;
  const json first = json::parse(to_json(row, last)), second = json::parse(to_json(row, last));
  EXPECT_EQ(first["packing"],
            json({{"documents", 10}, {"rows", 4}, {"padding", 0.25}, {"cut", 0.1}, {"cut_concatenated", 0.4}}));
  EXPECT_EQ(second["padding_tokens"], 5);
  EXPECT_FALSE(second.contains("packing"));
}

TEST(StepRowAsJson, KeepsEveryBitOfANumber) {
  const StepRow row = sample_row();
  const json read = json::parse(to_json(row));
  EXPECT_EQ(read["loss"].get<double>(), row.loss);
  EXPECT_EQ(read["grad_norm"].get<double>(), row.grad_norm);
  EXPECT_EQ(read["tokens"].get<std::int64_t>(), row.tokens);
}

TEST(StepRowAsJson, CarriesTheLoadOfExpertsWhereThereAreAny) {
  StepRow row = sample_row();
  EXPECT_FALSE(json::parse(to_json(row)).contains("expert_load_max"));
  EXPECT_FALSE(expert_load({}).has_value());
  EXPECT_FALSE(expert_load({{}, {}}).has_value()) << "dense layers only";
  row.expert_load = expert_load({{}, {5, 4, 3}, {2, 9, 1}, {4, 4, 4}});
  const json found = json::parse(to_json(row));
  EXPECT_DOUBLE_EQ(found["expert_load_max"].get<double>(), 9.0 / 4);
  EXPECT_EQ(found["expert_load_layer"], 2);
  EXPECT_EQ(found["expert_tokens"], json::parse("[2, 9, 1]"));
  EXPECT_EQ(expert_load({{0, 0}})->max, 0) << "no tokens at all";
}

TEST(StepRowAsJson, HasTheSpikeScoreAndTheNormsOfBlocksThatAreKnown) {
  StepRow row = sample_row();
  EXPECT_TRUE(json::parse(to_json(row))["spike_score"].is_null());
  EXPECT_FALSE(json::parse(to_json(row)).contains("block_grad_norms"));
  row.spike_score = 7.5;
  row.block_grad_norms = {{"embedding", 0.5}, {"b0", 0.25}};
  const json read = json::parse(to_json(row));
  EXPECT_EQ(read["spike_score"], 7.5);
  EXPECT_EQ(read["block_grad_norms"], json({{"embedding", 0.5}, {"b0", 0.25}}));
}

TEST(StepRowAsJson, CarriesTheZLossWhereThereIsOne) {
  StepRow row = sample_row();
  row.z_loss = 0.1 + 0.7;
  EXPECT_EQ(json::parse(to_json(row))["z_loss"].get<double>(), 0.1 + 0.7);
}

TEST(StepRowAsJson, WritesNullForWhatIsNotFiniteOrUnknown) {
  StepRow row = sample_row();
  row.loss = std::numeric_limits<double>::quiet_NaN();
  row.grad_norm = std::numeric_limits<double>::infinity();
  row.skipped = true;
  const json read = json::parse(to_json(row));
  EXPECT_TRUE(read["loss"].is_null());
  EXPECT_TRUE(read["grad_norm"].is_null());
  EXPECT_TRUE(read["mfu"].is_null());
  EXPECT_TRUE(read["skipped"].get<bool>());
}

TEST(StepRowAsJson, GivesAnEmptyTableWhereNothingWasMoved) {
  const json read = json::parse(to_json(StepRow{}));
  EXPECT_EQ(read["comm_bytes"], json::object());
  EXPECT_EQ(read["comm_calls"], json::object());
}

TEST(EvalRowAsJson, HasBitsPerByteAndScoresWhereTheyAreKnown) {
  EvalRow row{.step = 3, .eval_loss = 2, .eval_tokens = 7, .eval_seconds = 1};
  const json without = json::parse(to_json(row));
  EXPECT_FALSE(without.contains("eval_bits_per_byte") || without.contains("eval_choices"));
  row.bits_per_byte = 1.5;
  row.bits_per_byte_of_sets = {{"web", 1.25}};
  row.choices = {{"ships", {.accuracy = 0.25, .accuracy_norm = 0.5, .questions = 4}}};
  const json with = json::parse(to_json(row));
  EXPECT_EQ(with["eval_bits_per_byte"], 1.5);
  EXPECT_EQ(with["eval_bits_per_byte_of_sets"]["web"], 1.25);
  EXPECT_EQ(with["eval_choices"]["ships"], json({{"accuracy", 0.25},
                                                 {"accuracy_stderr", 0.25},
                                                 {"accuracy_norm", 0.5},
                                                 {"accuracy_norm_stderr", std::sqrt(0.25 / 3)},
                                                 {"questions", 4}}));
}

TEST(EvalRowAsJson, CarriesEvalLossAndNeverLoss) {
  const json row = json::parse(to_json(EvalRow{.step = 10, .eval_loss = 2.5, .eval_tokens = 640}));
  EXPECT_EQ(row["step"], 10);
  EXPECT_EQ(row["eval_loss"], 2.5);
  EXPECT_FALSE(row.contains("loss"));
  EXPECT_FALSE(row.contains("eval_losses"));
}

TEST(EvalRowAsJson, CarriesTheLossOfEachNamedSet) {
  const json row = json::parse(to_json(EvalRow{.step = 10, .eval_loss = 2, .eval_losses = {{"web", 1.5}, {"c", 3}}}));
  EXPECT_EQ(row["eval_losses"], (json{{"web", 1.5}, {"c", 3.0}}));
}

class MetricsFileTest : public testing::Test {
 protected:
  const test::TemporaryDirectory directory_;
};

TEST_F(MetricsFileTest, HasEachLineBeforeAppendReturns) {
  const std::string path = directory_ / "metrics.jsonl";
  MetricsFile file(path);
  for (int step = 1; step <= 3; ++step) {
    file.append(to_json(StepRow{.step = step}));
    std::ifstream read(path);
    int lines = 0;
    for (std::string line; std::getline(read, line); ++lines) EXPECT_EQ(json::parse(line)["step"], lines + 1);
    EXPECT_EQ(lines, step);
  }
}

TEST_F(MetricsFileTest, SuggestsARemedyWhereItCannotBegin) {
  try {
    MetricsFile file(directory_ / "nowhere/metrics.jsonl");
    ADD_FAILURE();
  } catch (const WriteError& error) {
    EXPECT_THAT(error.what(), HasSubstr("run.output"));
  }
}

TEST_F(MetricsFileTest, OutlivesAFullDisk) {
  MetricsFile full("/dev/full");
  EXPECT_NO_THROW(full.append(to_json(StepRow{})));
}

class KeepLines : public MetricsFileTest {
 protected:
  [[nodiscard]] std::string after(const std::string& text, std::int64_t keep_steps) {
    const std::string path = directory_ / "metrics.jsonl";
    std::ofstream(path, std::ios::trunc) << text;
    kept_ = keep_lines(path, keep_steps);
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  KeptLines kept_;
};

TEST_F(KeepLines, CutsBackToAStepOnAFullDisk) {
  const std::string lines = "{\"step\":1}\n{\"step\":2}\n{\"step\":2,\"eval_loss\":3}\n";
  std::string left;
  {
    const std::string path = directory_ / "metrics.jsonl";
    std::ofstream(path) << lines + "{\"step\":3}\n{\"st";
    const test::FileLimit full(0);
    kept_ = keep_lines(path, 2);
    std::ifstream file(path);
    left = {std::istreambuf_iterator<char>(file), {}};
  }
  EXPECT_EQ(left, lines);
  EXPECT_EQ(kept_.lines, 3);
  EXPECT_EQ(kept_.evaluated_step, 2);
}

TEST_F(KeepLines, RefusesWhatIsNoFileAndLinesThatNoRunWrote) {
  const std::string path = directory_ / "metrics.jsonl";
  std::filesystem::create_symlink("/dev/zero", path);
  EXPECT_THROW((void)keep_lines(path, 2), WriteError);
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_THROW((void)keep_lines(path, 2), WriteError);
  std::filesystem::remove(path);
  const std::string line = "{\"step\":1}\n";
  std::ofstream(path) << line << std::string((std::size_t{16} << 20) + 1, ' ');
  const auto bytes = std::filesystem::file_size(path);
  EXPECT_THROW((void)keep_lines(path, 2), WriteError);
  EXPECT_EQ(std::filesystem::file_size(path), bytes) << "and is as it was";
}

TEST_F(KeepLines, OfSeveralStretchesStayInOrder) {
  std::string text, expected;
  for (int step = 1; step <= 4000; ++step) {
    const std::string line = "{\"step\":" + std::to_string(step % 7) + ",\"note\":\"" + std::string(900, 'x') + "\"}\n";
    text += line;
    if (step % 7 <= 3) expected += line;
  }
  EXPECT_EQ(after(text, 3), expected);
  EXPECT_EQ(directory_.names(), std::vector<std::string>{"metrics.jsonl"});
}

TEST_F(KeepLines, OfDamagedFilesAreWholeLines) {
  const std::string sound = "{\"step\":1,\"loss\":5}\n{\"step\":2,\"eval_loss\":4}\n{\"step\":3}\n";
  test::Mutation mutation(test::fuzz_seed());
  for (int trial = 0; trial < 2000; ++trial) {
    const std::string left = after(mutation.of(sound), 2);
    ASSERT_EQ(std::ranges::count(left, '\n'), kept_.lines) << "seed " << test::fuzz_seed() << ", input " << trial;
    ASSERT_EQ(after(left, 2), left) << "seed " << test::fuzz_seed() << ", input " << trial;
  }
}

TEST_F(KeepLines, ThroughALinkAreThoseOfItsFile) {
  const std::string target = directory_ / "elsewhere";
  std::ofstream(target) << "{\"step\":9}\n{\"step\":1}\n";
  std::filesystem::create_symlink("elsewhere", directory_ / "metrics.jsonl");
  (void)keep_lines(directory_ / "metrics.jsonl", 2);
  EXPECT_EQ(std::filesystem::file_size(target), 11U);
  EXPECT_TRUE(std::filesystem::is_symlink(directory_ / "metrics.jsonl"));
}

TEST_F(KeepLines, DropsHalfLinesWhereverTheyAre) {
  EXPECT_EQ(after("{\"step\":1}\n{\"st\n{\"step\":2}\n", 5), "{\"step\":1}\n{\"step\":2}\n");
  EXPECT_EQ(after("{\"step\":1}\n{\"step\":2}", 5), "{\"step\":1}\n{\"step\":2}\n") << "only its end was missing";
  EXPECT_EQ(kept_.evaluated_step, 0);
  EXPECT_EQ(after("{\"step\":7}\n", 5), "");
}

TEST(Metrics, NameTheKeysOfEvaluationsInAStepsRow) {
  const json row = json::parse(with_evaluation_keys(R"({"step":1,"loss":2.5})", {"web", "code"}));
  EXPECT_EQ(
      row,
      json::parse(
          R"({"step":1,"loss":2.5,"eval_loss":null,"eval_tokens":null,"eval_seconds":null,"eval_bits_per_byte":null,)"
          R"("eval_losses":{"web":null,"code":null}})"));
  EXPECT_FALSE(json::parse(with_evaluation_keys("{\"step\":1}", {})).contains("eval_losses"));
}

}  // namespace
}  // namespace trireme::train::metrics_test

// Fault, files: a line of metrics.jsonl beyond 16 MiB -> exit code 8; memory bounded
