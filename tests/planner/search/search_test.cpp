// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/search/search.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "../time/runs.hpp"
#include "moving_peaks.hpp"
#include "planner/search/candidates.hpp"
#include "planner/time/plan_cache.hpp"
#include "trireme/base/error.hpp"
#include "trireme/config/rules.hpp"
#include "trireme/planner/pipeline.hpp"

namespace trireme::planner {
namespace {

using ::testing::HasSubstr;

config::RunConfig parsed_run(const std::vector<std::string>& overrides = {}) {
  return config::parse_run_file(R"(
[model]
vocab_size = 1024
hidden_size = 256
intermediate_size = 512
layers = 3
heads = 8
[data]
train = "tokens.bin"
seq_len = 64
[batch]
global = 16
micro = 1
[train]
steps = 1
[device]
type = "cuda"
)",
                                "search", overrides);
}

struct Candidate {
  Bytes memory;
  double tokens_per_second;
};

/// All candidates, each predicted in full and separately.
std::vector<Candidate> all_candidates(const config::RunConfig& config, int ranks, const Machine& machine) {
  std::vector<Candidate> all;
  for (const config::RunConfig& group : candidate_groups(config, ranks, machine))
    for (const Savings& savings : savings_of(group)) {
      const Prediction p = predict(with(group, savings), ranks, machine, {.percentiles = false, .few_layers = true});
      all.push_back({.memory = p.memory.total(), .tokens_per_second = p.tokens_per_second()});
    }
  return all;
}

double best_within(const std::vector<Candidate>& all, Bytes limit) {
  double best = 0;
  for (const Candidate& candidate : all)
    if (candidate.memory <= limit) best = std::max(best, candidate.tokens_per_second);
  return best;
}

/// Whether the search finds it, with the memory of the run file and with less.
void expect_best_of_all(config::RunConfig config, int ranks) {
  const Machine machine = load_machine("gh200");
  const std::vector<Candidate> candidates = all_candidates(config, ranks, machine);
  for (const double part : {1.0, 0.6}) {
    const Memory memory = predict_memory(config, config::resolve(config, ranks));
    const Bytes less = memory.total() - memory.product_workspace;  // no setting saves that one
    config.memory.budget =
        memory.product_workspace + Bytes{static_cast<std::int64_t>(part * static_cast<double>(less.value))};
    const SearchResult result = search(config, ranks, machine);
    ASSERT_FALSE(result.best.empty()) << part;
    const double all = best_within(candidates, *config.memory.budget);
    EXPECT_NEAR(result.best.front().prediction.tokens_per_second(), all, 1e-9 * all) << part;
    EXPECT_EQ(result.candidates,
              result.refused + result.too_large + result.too_large_for_host + result.outdone + result.simulated);
    for (std::size_t i = 0; i < result.best.size(); ++i) {
      const Found& found = result.best[i];
      EXPECT_LE(found.prediction.memory.total(), *config.memory.budget);
      EXPECT_LE(found.prediction.tokens_per_second(), result.best[i == 0 ? 0 : i - 1].prediction.tokens_per_second());
      const Prediction alone = predict(found.config, ranks, machine, {.few_layers = true});
      EXPECT_DOUBLE_EQ(found.prediction.expected.seconds, alone.expected.seconds)
          << "what candidates share is their own";
      EXPECT_EQ(found.prediction.memory.total(), alone.memory.total());
    }
  }
}

TEST(Search, FindsTheBestOfAllThatFit) { expect_best_of_all(parsed_run({"batch.global=8"}), 2); }

TEST(Search, FindsTheBestMixtureOfAllThatFit) {
  expect_best_of_all(parsed_run({"model.architecture=mixtral", "model.experts=4", "model.experts_per_token=2",
                                 "model.layers=5", "batch.global=4"}),
                     4);
}

TEST(Search, ReturnsNothingThatFitsWithAFewLayersOnly) {
  const Machine machine = load_machine("gh200");
  std::mt19937 random(3);
  for (int between = 0, i = 0; between < 2; ++i) {
    ASSERT_LT(i, 200);
    config::RunConfig config = testing::run_whose_peak_may_move(random);
    const config::Resolved mesh = config::resolve(config, 4);
    const Bytes few = predict_memory(config, mesh, true).total();
    if (few == predict_memory(config, mesh).total()) continue;
    ++between;
    config.memory.budget = few;
    const SearchResult result = search(config, 4, machine, {.keep = 1000});
    EXPECT_FALSE(result.best.empty());
    for (const Found& found : result.best) EXPECT_LE(found.prediction.memory.total(), few);
    const SearchResult first = search(config, 4, machine, {.keep = 1});
    ASSERT_FALSE(first.best.empty());
    EXPECT_EQ(first.best[0].prediction.tokens_per_second(), result.best[0].prediction.tokens_per_second());
  }
}

TEST(Search, TriesThousandsOfCandidatesOnSixtyFourRanks) {
  std::int64_t last = 0;
  const SearchResult result = search(testing::run_of(testing::llama_8b(), 64, 1), 64, load_machine("h100"),
                                     {.keep = 10, .progress = [&](const SearchProgress& p) {
                                        EXPECT_GE(p.done, last);
                                        last = p.done;
                                      }});
  EXPECT_GT(result.candidates, 1000);
  EXPECT_EQ(last, result.candidates);
  EXPECT_EQ(result.best.size(), 10U);
  EXPECT_GE(result.best.front().prediction.tokens_per_second(), result.given.prediction.tokens_per_second());
  EXPECT_EQ(result.limit, Bytes{72'000'000'000}) << "90% of 80 GB";
}

TEST(Search, WritesRunFilesThatParseToTheSame) {
  const SearchResult result = search(parsed_run({"mesh.tensor=2"}), 4, load_machine("gh200"));
  for (const Found& found : result.best) {
    const std::string text = config::print_run_file(found.config);
    EXPECT_EQ(config::print_run_file(config::parse_run_file(text, "best")), text);
  }
}

TEST(Search, DividesExpertsOverTheRanksOfAFold) {
  const config::RunConfig config = parsed_run({"model.architecture=mixtral", "model.experts=4",
                                               "model.experts_per_token=2", "mesh.expert=2", "mesh.expert_room=1.5"});
  std::set<std::int64_t> sizes, others;
  for (const config::RunConfig& group : candidate_groups(config, 8, load_machine("gh200"))) {
    sizes.insert(group.mesh.expert);
    const std::int64_t fold = 8 / (group.mesh.replicate * group.mesh.pipeline);
    EXPECT_EQ(fold % group.mesh.expert, 0);
    EXPECT_TRUE(group.mesh.tensor == 1 || group.sync.reshard_after_forward <= 1) << "no group fits experts";
    others.insert(group.mesh.expert > 1 ? group.mesh.tensor * group.mesh.pipeline : 1);
    EXPECT_EQ(group.mesh.expert_room, group.mesh.expert > 1 ? 1.5 : 1.25) << "a room without ranks is a mistake";
  }
  EXPECT_EQ(sizes, (std::set<std::int64_t>{1, 2, 4}));
  EXPECT_GT(others.size(), 2U) << "beside tensor and pipeline ranks, too";
  for (const config::RunConfig& group : candidate_groups(parsed_run(), 8, load_machine("gh200")))
    EXPECT_EQ(group.mesh.expert, 1) << "a dense model";
}

TEST(Search, SharesLongSequencesAmongTheRanksOfANode) {
  const auto sizes = [](const std::string& seq_len) {
    std::set<std::int64_t> sizes;
    for (const config::RunConfig& group :
         candidate_groups(parsed_run({"data.seq_len=" + seq_len}), 8, load_machine("gh200"))) {
      sizes.insert(group.mesh.context);
      EXPECT_LE(group.mesh.context * group.mesh.tensor, 4) << "ranks of a node";
    }
    return sizes;
  };
  EXPECT_EQ(sizes("4096"), (std::set<std::int64_t>{1}));
  EXPECT_EQ(sizes("16384"), (std::set<std::int64_t>{1, 2}));
  EXPECT_EQ(sizes("131072"), (std::set<std::int64_t>{1, 2, 4}));
  const SearchResult result =
      search(parsed_run({"data.seq_len=16384", "batch.global=8"}), 8, load_machine("gh200"), {.keep = 200});
  EXPECT_TRUE(std::ranges::any_of(result.best, [](const Found& found) { return found.config.mesh.context == 2; }))
      << "they can be planned";
}

/// A model is built once for all candidates that share it.
TEST(PlanCache, SeparatesLayersAndAxes) {
  PlanCache cache;
  config::RunConfig config = testing::small_run();
  const auto of = [&](int ranks) { return cache.model(config, config::resolve(config, ranks)); };
  const auto whole = of(4);
  EXPECT_EQ(of(2), whole) << "shards are no part of the model";
  config.mesh.tensor = 2;
  const auto half = of(4);
  EXPECT_EQ(half->held.heads * 2, whole->held.heads);
  config.mesh.tensor = 1;
  config.model.layers += 1;
  EXPECT_EQ(of(4)->compute_blocks.size(), whole->compute_blocks.size() + 1);
}

TEST(PlanCache, SeparatesSteps) {
  PlanCache cache;
  const config::RunConfig config = testing::small_run();
  const config::Resolved mesh = config::resolve(config, 4);
  const auto model = cache.model(config, mesh);
  const schedule::Policy policy = schedule::policy_of(config, mesh);
  const auto step = cache.step(model, 2, policy);
  EXPECT_EQ(cache.step(model, 2, policy), step);
  EXPECT_NE(cache.step(model, 3, policy), step);
  schedule::Policy other = policy;
  other.reshard.after_forward = !other.reshard.after_forward;
  EXPECT_NE(cache.step(model, 2, other), step);
  other = policy;
  other.replicas = 2;
  const auto hybrid = cache.step(model, 2, other);
  EXPECT_NE(hybrid->ops.size(), step->ops.size()) << "replicas are summed";
  other.replicas = 8;
  EXPECT_EQ(cache.step(model, 2, other), hybrid);
  EXPECT_EQ(hybrid->ops.size(), schedule::build_step(*model, 2, other).ops.size());
  EXPECT_NE(cache.layout(model, 2), cache.layout(model, 4));
  EXPECT_EQ(cache.needs(step, model)->size(), schedule::needs(*step, *model).size());
}

TEST(PlanCache, SeparatesPipelines) {
  PlanCache cache;
  config::RunConfig config = testing::small_run();
  config.model.layers = 8;
  config.mesh.pipeline = 4;
  const config::Resolved mesh = config::resolve(config, 4);
  const auto whole = cache.model(config, mesh);
  const schedule::Policy policy = schedule::policy_of(config, mesh);
  schedule::Pipeline pipeline = pipeline_of(config, 8);
  const auto parts = cache.parts(config, whole, pipeline);
  const auto steps = cache.steps(parts, pipeline, policy);
  EXPECT_EQ(cache.steps(parts, pipeline, policy), steps);
  EXPECT_EQ(steps->size(), 4U);
  pipeline.microbatches = 16;
  EXPECT_EQ(cache.parts(config, whole, pipeline), parts) << "microbatches are no part of the model";
  EXPECT_NE(cache.steps(parts, pipeline, policy), steps);
  config.pipeline.layers = {1, 2, 2, 3};
  EXPECT_NE(cache.parts(config, whole, pipeline), parts);
}

TEST(Search, HonoursTheRulesOfOtherKeys) {
  const config::RunConfig config = parsed_run({"device.cuda_graphs=true"});
  const SearchResult result = search(config, 8, load_machine("gh200"));
  EXPECT_GT(result.refused, 0);
  for (const Found& found : result.best) {
    EXPECT_EQ(found.config.mesh.tensor, 1) << "graphs do not support tensor parallelism";
    EXPECT_FALSE(found.config.memory.activation_offload);
  }
}

TEST(Search, ReportsThatNothingFits) {
  const SearchResult result = search(parsed_run({"memory.budget=1000"}), 8, load_machine("gh200"));
  EXPECT_TRUE(result.best.empty());
  EXPECT_THAT(to_text(result), HasSubstr("Nothing fits"));
  EXPECT_THAT(to_text(result), HasSubstr("DOES NOT FIT"));
}

/// A DGX H100 has 2 TB, of which a tenth is left to the system.
TEST(Search, PlansOf70BFitTheHostMemoryOfANode) {
  config::RunConfig config = config::load_run_file(TRIREME_SOURCE_DIR "/inputs/llama3-70b.toml");
  config.device.type = config::DeviceType::cuda;
  const Machine machine = load_machine("h100");
  for (const int ranks : {8, 64, 512}) {
    const SearchResult result = search(config, ranks, machine, {.keep = 3});
    ASSERT_FALSE(result.best.empty()) << ranks;
    EXPECT_EQ(result.host_limit, Bytes{1'800'000'000'000});
    for (const Found& found : result.best) {
      const Memory memory = predict_memory(found.config, found.prediction.mesh);
      EXPECT_LE(host_memory_of_node(memory, found.prediction.mesh, machine).bytes, *result.host_limit) << ranks;
      EXPECT_LE(memory.total(), result.limit) << ranks;
    }
    EXPECT_THAT(to_text(result), HasSubstr("host memory a node"));
  }
}

TEST(Search, RulesOutWhatDoesNotFitTheHost) {
  Machine machine = load_machine("gh200");
  config::RunConfig config = parsed_run({"batch.global=8", "train.steps=100", "checkpoint.every=5"});
  const std::int64_t copies =
      host_memory_of_node(predict_memory(config, config::resolve(config, 2)), config::resolve(config, 2), machine)
          .copies.value;
  ASSERT_GT(copies, 0);
  config.memory.budget = predict_memory(config, config::resolve(config, 2)).total();
  EXPECT_TRUE(search(config, 2, machine).best.front().config.checkpoint.async);
  machine.node_memory = {copies * 10 / 9 + 10};  // the copies and nothing more
  const SearchResult result = search(config, 2, machine, {.keep = 1000});
  ASSERT_FALSE(result.best.empty());
  for (const Found& found : result.best) EXPECT_LE(found.host.bytes, *result.host_limit);
  EXPECT_TRUE(std::ranges::any_of(result.best, [](const Found& f) { return !f.config.checkpoint.async; }))
      << "without the copies there is room for offload";
  machine.node_memory = {10};
  config.memory.budget =
      predict_memory(with(config, {.recompute = 3, .offload = 2, .activations = 1}), config::resolve(config, 2))
          .total();
  const SearchResult nothing = search(config, 2, machine);
  EXPECT_GT(nothing.too_large_for_host, 0);
  for (const Found& found : nothing.best) EXPECT_EQ(found.host.bytes, Bytes{});
}

TEST(Search, SeparatesNoCandidateNothingFitsAndTheRunFile) {
  const Machine machine = load_machine("gh200");
  SearchResult result = search(parsed_run({"batch.global=4", "mesh.tensor=4", "mesh.replicate=2", "mesh.pipeline=4",
                                           "model.layers=4", "pipeline.schedule=gpipe"}),
                               32, machine);
  EXPECT_EQ(result.candidates, 0);
  EXPECT_TRUE(result.best.empty());
  EXPECT_TRUE(result.given_fit.both());
  EXPECT_THAT(to_text(result), HasSubstr("No candidate: batch.global = 4 cannot be divided"));
  EXPECT_THAT(to_text(result), HasSubstr("The run file itself fits."));
  result = search(parsed_run({"memory.budget=1000"}), 8, machine);
  EXPECT_THAT(nothing_fits_text(result), HasSubstr("candidates need more than 1000 B of a rank's memory"));
  // A part that is offloaded is no candidate, and here the fastest that fits.
  config::RunConfig given = parsed_run({"memory.offload=optimizer", "memory.offload_fraction=0.5"});
  given.memory.budget = predict_memory(given, config::resolve(given, 2)).total();
  result = search(given, 2, machine);
  ASSERT_FALSE(result.best.empty());
  const double rate = result.given.prediction.tokens_per_second();
  EXPECT_GE(result.best.front().prediction.tokens_per_second(), rate);
  if (result.best.front().prediction.tokens_per_second() == rate) {
    EXPECT_THAT(to_text(result), HasSubstr("The run file is the best of them."));
  }
}

TEST(Search, NamesTheLimitThatBinds) {
  Machine machine = load_machine("gh200");
  machine.contention = machine.layer_seconds = machine.step_seconds = 0;
  machine.inside.latency = 0;
  machine.inside.bandwidth = 1e15;
  machine.memory_bandwidth = 1e15;  // else the forward waits for its updates
  config::RunConfig config = parsed_run({"batch.global=2"});
  const auto bound = [&] { return search(config, 2, machine, {.keep = 0}).given.bound_by; };
  EXPECT_EQ(bound(), "compute");
  config.memory.recompute = config::Recompute::block;
  EXPECT_THAT(bound(), HasSubstr("memory "));
  machine.inside.bandwidth = 1e8;
  EXPECT_THAT(bound(), HasSubstr(" lane "));
}

TEST(PredictMemory, OfAFewLayersIsThatOfAll) {
  config::RunConfig config = testing::small_run();
  config.model.layers = 13;
  const auto groups = candidate_groups(config, 8, load_machine("gh200"));
  for (std::size_t i = 0; i < groups.size(); i += 11)
    for (const Savings& savings : savings_of(groups[i])) {
      config::RunConfig candidate = with(groups[i], savings);
      if (i % 2 == 0) candidate.optimizer.name = config::OptimizerName::muon;
      candidate.optimizer.window_bytes = Bytes{1 << 12};  // of several windows
      const config::Resolved mesh = config::resolve(candidate, 8);
      const Memory few = predict_memory(candidate, mesh, true), all = predict_memory(candidate, mesh);
      ASSERT_EQ(few.total(), all.total()) << config::print_run_file(candidate);
      ASSERT_EQ(few.host.total(), all.host.total()) << config::print_run_file(candidate);
    }
}

}  // namespace
}  // namespace trireme::planner
