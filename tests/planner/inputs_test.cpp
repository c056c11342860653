// SPDX-License-Identifier: Apache-2.0
//
// The run files of inputs/ for stated machines: each is planned with the command in its first lines, and needs the
// memory that these state.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>

#include "trireme/config/load.hpp"
#include "trireme/planner/choose.hpp"
#include "trireme/planner/pipeline.hpp"
#include "trireme/planner/time/machine.hpp"
#include "trireme/planner/time/predict.hpp"

namespace trireme::planner {
namespace {

/// What the first lines of a run file say.
struct Stated {
  std::string path, text, machine;
  int ranks = 0;
  double gib = 0;

  explicit Stated(const std::string& name) : path(TRIREME_SOURCE_DIR "/inputs/" + name) {
    std::ifstream file(path);
    text.assign(std::istreambuf_iterator<char>(file), {});
    std::smatch found;
    if (std::regex_search(text, found, std::regex(R"(--ranks (\d+))"))) ranks = std::stoi(found[1]);
    if (std::regex_search(text, found, std::regex(R"(--machine (\S+))"))) machine = found[1];
    if (std::regex_search(text, found, std::regex(R"(needs (\d+) GiB)"))) gib = std::stod(found[1]);
  }
};

double in_gib(Bytes bytes) { return static_cast<double>(bytes.value) / (std::int64_t{1} << 30); }

TEST(Inputs, OfLlama3FitTheirMachines) {
  for (const std::string name : {"llama3-8b.toml", "llama3-70b.toml"}) {
    const Stated stated(name);
    ASSERT_GT(stated.ranks, 0) << name;
    const config::RunConfig config = config::load_run_file(stated.path);
    const Machine machine = load_machine(stated.machine);
    const Prediction planned = predict(config, stated.ranks, machine, {.percentiles = false, .few_layers = true});
    EXPECT_NEAR(in_gib(planned.memory.total()), stated.gib, 0.5) << name;
    EXPECT_LT(planned.memory.total(), machine.memory) << name;
    EXPECT_GT(planned.mfu, 0.35) << name;
  }
}

TEST(Inputs, OfMixturesFitAndCountTheParametersOfATokenOnly) {
  struct Published {
    const char* name;
    std::int64_t elements;
    double of_token;  ///< without the embedding
  };
  for (const auto& [name, elements, of_token] :
       {Published{"qwen3-30b-a3b.toml", 30532122624, 3.03e9}, Published{"mixtral-8x7b.toml", 46702792704, 12.75e9}}) {
    const Stated stated(name);
    config::RunConfig config = config::load_run_file(stated.path);
    config.device.type = config::DeviceType::cuda;
    const Machine machine = load_machine(stated.machine);
    const Prediction planned = predict(config, stated.ranks, machine, {.percentiles = false, .few_layers = true});
    EXPECT_NEAR(in_gib(planned.memory.total()), stated.gib, 0.5) << name;
    EXPECT_LT(planned.memory.total(), machine.memory) << name;
    const model::Model model = model::build(config.model);
    EXPECT_EQ(model.elements(), elements) << name;
    EXPECT_NEAR(model::flops_per_token(model, 0) / 6, of_token, 2e7) << name;
    EXPECT_EQ(config.train.steps, static_cast<std::int64_t>(std::ceil(1e12 / 1024 / 4096))) << name;
  }
}

TEST(Inputs, OfLlama3405BIsAPipelineThatFits) {
  const Stated stated("llama3-405b.toml");
  const config::RunConfig config = config::load_run_file(stated.path);
  const PipelinePlan plan = plan_pipeline(config, config::resolve(config, stated.ranks));
  const double gib = in_gib(plan.memory[static_cast<std::size_t>(plan.worst_rank())].total());
  EXPECT_NEAR(gib, stated.gib, 0.5);
  EXPECT_NE(action_grid(plan).find("19.0% = "), std::string::npos) << "the bubble that the file states";
}

/// docs/parallelism.md
TEST(Inputs, OfLlama38BPlanSequencesOfAMillionTokens) {
  config::RunConfig config = config::load_run_file(TRIREME_SOURCE_DIR "/inputs/llama3-8b.toml");
  config.device.type = config::DeviceType::cuda;
  config.data.seq_len = 1 << 20;
  config.batch = {.global = 16, .micro = 1};
  config.mesh = {.shard = 2, .tensor = 8, .sequence_parallel = true, .context = 8};
  const Machine machine = load_machine("h100");
  const Prediction planned = predict(config, 128, machine, {.percentiles = false, .few_layers = true});
  EXPECT_NEAR(in_gib(planned.memory.total()), 54.6, 0.5);
  EXPECT_LT(planned.memory.total(), machine.memory);
  config.mesh = {.shard = 16, .tensor = 8, .sequence_parallel = true};
  EXPECT_GT(predict(config, 128, machine, {.percentiles = false, .few_layers = true}).memory.total(), machine.memory)
      << "tensor parallelism alone";
}

TEST(Inputs, OfLlama3TrainOn15TrillionTokens) {
  for (const std::string name : {"llama3-8b.toml", "llama3-70b.toml", "llama3-405b.toml"}) {
    const config::RunConfig config = config::load_run_file(TRIREME_SOURCE_DIR "/inputs/" + name);
    const auto tokens = static_cast<double>(config.batch.global * config.data.seq_len);
    EXPECT_EQ(config.train.steps, static_cast<std::int64_t>(std::ceil(15e12 / tokens))) << name;
  }
}

}  // namespace
}  // namespace trireme::planner
