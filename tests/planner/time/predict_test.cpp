// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/time/predict.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "runs.hpp"
#include "trireme/base/error.hpp"
#include "trireme/model/product_workspace.hpp"
#include "trireme/planner/rank_bytes.hpp"
#include "trireme/schedule/passes/build.hpp"

namespace trireme::planner {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Change {
  const char* name;
  std::function<void(config::RunConfig&)> apply;
};

const std::vector<Change>& changes() {
  static const std::vector<Change> all{
      {"immediate", [](auto&) {}},
      {"deferred", [](auto& c) { c.sync.policy = config::SyncPolicy::deferred; }},
      {"immediate_all", [](auto& c) { c.sync.policy = config::SyncPolicy::immediate_all, c.mesh.replicate = 2; }},
      {"kept", [](auto& c) { c.sync.reshard_after_forward = 1; }},
      {"groups", [](auto& c) { c.sync.reshard_after_forward = 2; }},
      {"recompute", [](auto& c) { c.memory.recompute = config::Recompute::block; }},
      {"every second", [](auto& c) { c.memory.recompute = config::Recompute::block, c.memory.recompute_every = 2; }},
      {"offload", [](auto& c) { c.memory.offload = config::Offload::optimizer; }},
      {"activations", [](auto& c) { c.memory.activation_offload = true; }},
      {"tensor", [](auto& c) { c.mesh.tensor = 2; }},
      {"bf16 wire", [](auto& c) { c.precision.reduce = config::Reduce::bf16_wire; }},
  };
  return all;
}

/// Every microbatch and layer simulated.
double full_step(const config::RunConfig& config, int ranks, const Machine& machine) {
  const config::Resolved mesh = config::resolve(config, ranks);
  const model::Model model = model::build(config.model, tensor_part(config, mesh, 0));
  const auto step = schedule::build_step(model, mesh.accumulation, schedule::policy_of(config, mesh));
  const shard::Layout layout(model, mesh.shard);
  const ReplayOptions replay_options = replay_options_of(config, mesh);
  const Costs costs({.model = model,
                     .layout = layout,
                     .replay_options = replay_options,
                     .mesh = mesh,
                     .seq_len = config.data.seq_len},
                    machine, {});
  return simulate(step, schedule::needs(step, model), costs.of(step), machine.contention).seconds +
         machine.step_seconds;
}

TEST(Predict, BytesOnEveryLinkAreThoseOfTheReplay) {
  for (const Change& change : changes()) {
    config::RunConfig config = testing::small_run();
    config.batch.global = 64;  // eight microbatches: four of them extrapolated
    change.apply(config);
    const config::Resolved mesh = config::resolve(config, 8);
    const model::Model model = model::build(config.model, tensor_part(config, mesh, 0));
    const auto step = schedule::build_step(model, mesh.accumulation, schedule::policy_of(config, mesh));
    double sent = 0, copied = 0;
    for (const auto& [group, operations] :
         replay_traffic(step, model, shard::Layout(model, mesh.shard), replay_options_of(config, mesh)))
      for (const auto& [operation, moved] : operations)
        (group == "host" ? copied : sent) += static_cast<double>(moved.bytes.value);
    const StepTime predicted = predict(config, 8, load_machine("gh200")).expected;
    EXPECT_EQ(predicted.sent[1] + predicted.sent[2], sent) << change.name;
    EXPECT_EQ(predicted.sent[0], copied) << change.name;
    EXPECT_GT(predicted.sent[2], 0) << "four ranks a node";
  }
}

TEST(Predict, MicrobatchesAndLayersBeyondTheFirstRepeatThem) {
  for (const Change& change : changes()) {
    config::RunConfig config = testing::small_run();
    config.model.layers = 15;
    config.batch.global = 88;
    change.apply(config);
    const Machine machine = load_machine("gh200");
    const double full = full_step(config, 8, machine);
    EXPECT_NEAR(predict(config, 8, machine).expected.seconds, full, 0.005 * full) << change.name;
    EXPECT_NEAR(predict(config, 8, machine, {.few_layers = true}).expected.seconds, full, 0.01 * full) << change.name;
  }
}

/// Three layers of four with a window, as in Ministral: the fourth costs several times as much.
TEST(Predict, LayersOfOtherKindsRepeatAsTheirCycleDoes) {
  config::RunConfig config = testing::small_run();
  config.model.architecture = "ministral";
  config.model.layers = 27;
  config.model.sliding_window = 64;
  config.model.layer_types = {"sliding_attention", "sliding_attention", "sliding_attention", "full_attention"};
  config.data.seq_len = 16384;
  Machine machine = load_machine("gh200");
  machine.layer_seconds = 0;
  const double full = full_step(config, 8, machine);
  EXPECT_NEAR(predict(config, 8, machine, {.few_layers = true}).expected.seconds, full, 0.01 * full);
}

TEST(Predict, MemoryIsThatOfTheWholeStep) {
  for (const Change& change : changes()) {
    config::RunConfig config = testing::small_run();
    config.batch.global = 40;
    change.apply(config);
    const config::Resolved mesh = config::resolve(config, 8);
    const model::Model model = model::build(config.model, tensor_part(config, mesh, 0));
    const auto step = schedule::build_step(model, mesh.accumulation, schedule::policy_of(config, mesh));
    const Memory full = replay_memory(step, model, shard::Layout(model, mesh.shard), replay_options_of(config, mesh));
    EXPECT_EQ(predict(config, 8, load_machine("h100")).memory.total(), full.total()) << change.name;
  }
}

/// `plan` builds four microbatches of any number.
TEST(BytesOfRank, AreThoseOfTheWholeStep) {
  for (const Change& change : changes()) {
    config::RunConfig config = testing::small_run();
    config.batch.global = 88;  // eleven microbatches
    change.apply(config);
    const config::Resolved mesh = config::resolve(config, 8);
    const model::Model model = model::build(config.model, tensor_part(config, mesh, 0));
    const auto step = schedule::build_step(model, mesh.accumulation, schedule::policy_of(config, mesh));
    const shard::Layout layout(model, mesh.shards());
    const ReplayOptions replay_options = replay_options_of(config, mesh);
    const RankBytes bytes = bytes_of_rank(config, mesh, model);
    EXPECT_EQ(to_text(bytes.memory), to_text(replay_memory(step, model, layout, replay_options))) << change.name;
    EXPECT_EQ(bytes.traffic, replay_traffic(step, model, layout, replay_options)) << change.name;
    EXPECT_EQ(bytes.ops, std::ssize(step.ops)) << change.name;
    EXPECT_LT(std::ssize(bytes.step.ops), bytes.ops) << change.name;
  }
}

TEST(Predict, TermsAddUpToTheOp) {
  for (const Change& change : changes()) {
    config::RunConfig config = testing::small_run();
    change.apply(config);
    const PredictedStep step = predict_ops(config, 8, load_machine("gh200"));
    for (std::size_t i = 0; i < step.costs.size(); ++i) {
      double sum = 0;
      for (const Term& term : step.terms[i]) sum += term.seconds;
      if (std::holds_alternative<schedule::ClipNorm>(step.schedule.ops[i])) continue;  // and a latency
      EXPECT_NEAR(sum, step.costs[i].seconds, 1e-12 + 1e-9 * sum) << change.name << " op " << i;
    }
  }
}

/// An 8B model on one node by hand: what dominates is its products.
TEST(Predict, AnEightBillionModelOnOneNodeRunsAtAboutHalfOfPeak) {
  const Prediction p = predict(testing::run_of(testing::llama_8b(), 64, 1), 8, load_machine("h100"));
  EXPECT_GT(p.mfu, 0.40);
  EXPECT_LT(p.mfu, 0.60);
  EXPECT_LT(p.fast, p.expected.seconds);
  EXPECT_GT(p.slow, p.expected.seconds);
}

TEST(Predict, SlowerLinksNeverMakeAStepFaster) {
  const config::RunConfig config = testing::run_of(testing::llama_8b(), 512, 1);
  Machine machine = load_machine("h100");
  double before = 0;
  for (int i = 0; i < 6; ++i, machine.between.bandwidth /= 2) {
    const double seconds = predict(config, 64, machine, {.percentiles = false}).expected.seconds;
    EXPECT_GE(seconds, before);
    before = seconds;
  }
}

TEST(Predict, SixteenThousandRanksAreSimulatedAsOne) {
  config::RunConfig config = testing::run_of(testing::llama_70b(), 16384, 1);
  config.mesh.replicate = 64;
  const Prediction p = predict(config, 16384, load_machine("h100"));
  EXPECT_EQ(p.mesh.shard, 256);
  EXPECT_GT(p.mfu, 0.05);
  EXPECT_THAT(to_text(p, load_machine("h100")), HasSubstr("expect 20%"));
}

TEST(ScalingTable, ListsCountsThatDoNotFitWithTheReason) {
  const std::string table =
      scaling_table(testing::run_of(testing::llama_8b(), 64, 1), {512, 8, 64}, load_machine("h100")).text;
  EXPECT_THAT(table, HasSubstr("100%"));
  EXPECT_THAT(table, HasSubstr("512 ranks: "));
  EXPECT_THAT(table, HasSubstr("every one of them needs a sequence"));
}

TEST(ScalingTable, HasNoRowsWhereNoCountFits) {
  const ScalingTable table = scaling_table(testing::run_of(testing::llama_8b(), 4, 1), {64, 8}, load_machine("h100"));
  EXPECT_EQ(table.rows, 0);
  EXPECT_THAT(table.text, HasSubstr("64 ranks: "));
  EXPECT_THAT(table.text, HasSubstr("\n8 ranks: "));
}

TEST(ScalingTable, ShowsTheSameRowsInAnyOrder) {
  const config::RunConfig config = testing::run_of(testing::llama_8b(), 64, 1);
  const auto rows = [&](const std::vector<int>& ranks) {
    std::istringstream lines(scaling_table(config, ranks, load_machine("h100")).text);
    std::set<std::string> out;
    for (std::string line; std::getline(lines, line);) out.insert(line);
    return out;
  };
  EXPECT_EQ(rows({1, 8, 64, 512}), rows({512, 64, 8, 1}));
}

TEST(PredictedTrace, HoldsEveryOpOnceOnItsLane) {
  const PredictedStep step = predict_ops(testing::small_run(), 4, load_machine("h100"));
  const auto trace = nlohmann::json::parse(predicted_trace(step));
  std::size_t spans = 0;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const auto op = event["args"]["op"].get<std::size_t>();
    EXPECT_EQ(event["tid"], static_cast<int>(schedule::lane_of(step.schedule.ops[op])));
    EXPECT_GE(event["ts"].get<double>(), 0);
    ++spans;
  }
  EXPECT_EQ(spans, step.schedule.ops.size());
}

TEST(Predict, Fp8ProductsTakeTheirRateAndTheRounding) {
  config::RunConfig config = testing::run_of(testing::llama_8b(), 64, 1);
  const Machine machine = load_machine("h100");
  const auto compute = [&] { return predict(config, 64, machine).expected.compute; };
  const double bf16 = compute();
  config.precision.fp8 = Fp8::rowwise;
  config.precision.fp8_skip = {"*_proj*"};
  EXPECT_EQ(compute(), bf16);
  config.precision.fp8_skip.clear();
  const double fp8 = compute();
  // Two products of three are 1.6 times as fast; attention, the head and all other kernels are not.
  EXPECT_LT(fp8, 0.95 * bf16);
  EXPECT_GT(fp8, bf16 * (1 - 2.0 / 3 * (1 - 1 / 1.6)));
  config.precision.fp8_skip = {"*.mlp.*"};
  EXPECT_GT(compute(), fp8);
  EXPECT_LT(compute(), bf16);
  config.precision.fp8_skip.clear();
  EXPECT_EQ(predict(config, 64, machine).memory.total(),
            predict(testing::run_of(testing::llama_8b(), 64, 1), 64, machine).memory.total() + model::product_workspace)
      << "libtorch's, beside that of products in bf16";
  const std::string text = explain_time(predict_ops(config, 64, machine));
  EXPECT_THAT(text, HasSubstr("1.62 x 2 x 4096 x 14336 x 4096 / 6.23e+14 FLOP/s"));
  EXPECT_THAT(text, HasSubstr("rounding to fp8"));
  try {
    (void)predict(config, 64, load_machine("a100"));
    ADD_FAILURE() << "an A100 multiplies nothing in fp8";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("has no rate of such products; set gpu.fp8_factor"));
  }
}

/// The gradient of a large head is the most of a few thin layers, the activations of all layers that of many.
TEST(Predict, ExtrapolatesMemoryWhosePeakMovesToAnotherOp) {
  config::RunConfig config = testing::small_run();
  config.model = {.vocab_size = 20000,
                  .hidden_size = 256,
                  .intermediate_size = 1,
                  .layers = 40,
                  .heads = 2,
                  .kv_heads = 2,
                  .head_dim = 8};
  config.data.seq_len = 174;
  config.batch = {.global = 4, .micro = 4};
  config.memory.recompute = config::Recompute::selective;
  const config::Resolved mesh = config::resolve(config, 1);
  const Memory few = predict_memory(config, mesh, true), all = predict_memory(config, mesh);
  EXPECT_LT(few.at_once.most, all.at_once.most) << "its op holds less in all layers than another one";
  EXPECT_EQ(few.total(), all.total());
}

TEST(OwnersText, CountsMatricesAndReportsThatGpusRefuseMuon) {
  config::RunConfig config = testing::run_of(testing::llama_8b(), 64, 1);
  const auto text = [&](const char* machine) {
    const Machine of = load_machine(machine);
    return owners_text(config, predict(config, 64, of), of);
  };
  EXPECT_EQ(text("h100"), "");
  config.optimizer.name = config::OptimizerName::muon;
  // 20 m^2 n + 10 m^3 a matrix of m x n, m <= n: 6.7e14 in all.
  EXPECT_THAT(text("h100"), HasSubstr("Muon: 224 matrices of 64 owners in 1 window, 666 TFLOP a step"));
  EXPECT_THAT(text("h100"), HasSubstr("runs on GPUs refuse Muon so far"));
  EXPECT_THAT(text("local"), Not(HasSubstr("GPUs")));
}

TEST(ExplainTime, ShowsFormulasWithTheirNumbers) {
  const std::string text =
      explain_time(predict_ops(testing::run_of(testing::llama_8b(), 64, 1), 64, load_machine("h100")));
  EXPECT_THAT(text, HasSubstr("2 x 2 x 4096 x 14336 x 4096 / 6.23e+14 FLOP/s"));
  EXPECT_THAT(text, HasSubstr("3.5 us x 63"));
}

}  // namespace
}  // namespace trireme::planner
