// SPDX-License-Identifier: Apache-2.0
//
// The run files of inputs/ for stated machines: the first lines of each have the planner's predictions, and it fits.
// TRIREME_UPDATE_GOLDENS=1 writes the predictions anew.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/units.hpp"
#include "trireme/config/load.hpp"
#include "trireme/planner/choose.hpp"
#include "trireme/planner/pipeline.hpp"
#include "trireme/planner/time/machine.hpp"
#include "trireme/planner/time/predict.hpp"

namespace trireme::planner {
namespace {

/// First lines of a run file.
struct Stated {
  std::string path, text, machine;
  std::vector<int> ranks;
  double gib = 0;

  explicit Stated(const std::string& name) : path(TRIREME_SOURCE_DIR "/inputs/" + name) {
    std::ifstream file(path);
    text.assign(std::istreambuf_iterator<char>(file), {});
    std::smatch found;
    if (std::regex_search(text, found, std::regex(R"(--ranks ([\d,]+))"))) {
      std::istringstream counts(found[1].str());
      for (std::string count; std::getline(counts, count, ',');) ranks.push_back(std::stoi(count));
    }
    if (std::regex_search(text, found, std::regex(R"(--machine (\w+))"))) machine = found[1];
    if (std::regex_search(text, found, std::regex(R"(needs (\d+) GiB)"))) gib = std::stod(found[1]);
  }
};

double in_gib(Bytes bytes) { return static_cast<double>(bytes.value) / (std::int64_t{1} << 30); }

/// The table of predictions as the first lines have it.
std::string table_of(const std::vector<Prediction>& predictions, const Machine& machine) {
  std::string text = fmt::format("#   {:>5}  {:<20}  {:>7}  {:>9}  {:>5}  GiB a GPU, of {:.1f}\n", "GPUs", "mesh",
                                 "step", "tokens/s", "MFU", in_gib(machine.memory));
  for (const Prediction& p : predictions)
    text += fmt::format(
        "#   {:>5}  {:<20}  {:>5.3g} s  {:>9}  {:>4.1f}%  {:.1f}\n", p.ranks,
        p.mesh.pipeline > 1 ? fmt::format("{} x {}", p.mesh.pipeline, p.mesh.short_text()) : p.mesh.short_text(),
        p.expected.seconds, to_short_text(p.tokens_per_second()), 100 * p.mfu, in_gib(p.memory.total()));
  return text;
}

/// Whether both tables have the same words, and numbers that differ by at most 2%.
bool alike(const std::string& a, const std::string& b) {
  const auto words_of = [](const std::string& text) {
    std::istringstream words(text);
    return std::vector<std::string>(std::istream_iterator<std::string>(words), {});
  };
  return std::ranges::equal(words_of(a), words_of(b), [](const std::string& x, const std::string& y) {
    const double value = std::atof(x.c_str()), other = std::atof(y.c_str());
    return x == y || (value != 0 && std::abs(value - other) < 0.02 * value);
  });
}

TEST(Inputs, OfDenseModelsShowThePrediction) {
  for (const std::string name :
       {"gpt2-124m.toml", "llama3-1b.toml", "llama3-8b.toml", "llama3-70b.toml", "llama3-405b.toml", "qwen3-8b.toml"}) {
    const Stated stated(name);
    ASSERT_FALSE(stated.ranks.empty()) << name;
    config::RunConfig config = config::load_run_file(stated.path);
    config.device.type = config::DeviceType::cuda;
    const Machine machine = load_machine(stated.machine);
    std::vector<Prediction> planned;
    for (const int ranks : stated.ranks) {
      planned.push_back(predict(config, ranks, machine, {.percentiles = false}));
      EXPECT_LT(in_gib(planned.back().memory.total()), 0.9 * in_gib(machine.memory)) << name << ", " << ranks;
      EXPECT_GT(planned.back().mfu, 0.3) << name << ", " << ranks;
    }
    const std::string begin = "predicts:\n#\n", table = table_of(planned, machine);
    const std::size_t at = stated.text.find(begin) + begin.size(), end = stated.text.find("\n\n", at - 1) + 1;
    ASSERT_GT(at, begin.size()) << name << " says nothing of predictions";
    if (std::getenv("TRIREME_UPDATE_GOLDENS") != nullptr)
      std::ofstream(stated.path) << stated.text.substr(0, at) << table << stated.text.substr(end);
    else
      EXPECT_PRED2(alike, stated.text.substr(at, end - at), table)
          << name << ": run planner_tests with TRIREME_UPDATE_GOLDENS=1 and look at the diff";
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
    const Prediction planned =
        predict(config, stated.ranks.front(), machine, {.percentiles = false, .few_layers = true});
    EXPECT_NEAR(in_gib(planned.memory.total()), stated.gib, 0.5) << name;
    EXPECT_LT(planned.memory.total(), machine.memory) << name;
    const model::Model model = model::build(config.model);
    EXPECT_EQ(model.elements(), elements) << name;
    EXPECT_NEAR(model::flops_per_token(model, 0) / 6, of_token, 2e7) << name;
    EXPECT_EQ(config.train.steps, static_cast<std::int64_t>(std::ceil(1e12 / 1024 / 4096))) << name;
  }
}

TEST(Inputs, OfLlama3405BHasTheBubbleThatItStates) {
  const Stated stated("llama3-405b.toml");
  const config::RunConfig config = config::load_run_file(stated.path);
  const PipelinePlan plan = plan_pipeline(config, config::resolve(config, stated.ranks.front()));
  EXPECT_NE(stated.text.find("The bubble is 19% of a step"), std::string::npos);
  EXPECT_NE(action_grid(plan).find("19.0% = "), std::string::npos);
}

/// docs/parallelism.md
TEST(Inputs, OfLlama38BPlanSequencesOfAMillionTokens) {
  config::RunConfig config = config::load_run_file(TRIREME_SOURCE_DIR "/inputs/llama3-8b.toml");
  config.device.type = config::DeviceType::cuda;
  config.data.seq_len = 1 << 20;
  config.batch = {.global = 16, .micro = 1};
  config.sync = {.policy = config::SyncPolicy::deferred};
  config.mesh = {.shard = 2, .tensor = 8, .sequence_parallel = true, .context = 8};
  const Machine machine = load_machine("h100");
  const Prediction planned = predict(config, 128, machine, {.percentiles = false, .few_layers = true});
  EXPECT_NEAR(in_gib(planned.memory.total()), 54.6, 0.5);
  EXPECT_LT(planned.memory.total(), machine.memory);
  config.mesh = {.shard = 16, .tensor = 8, .sequence_parallel = true};
  EXPECT_GT(predict(config, 128, machine, {.percentiles = false, .few_layers = true}).memory.total(), machine.memory)
      << "tensor parallelism alone";
}

TEST(Inputs, TrainOnTheTokensThatTheyState) {
  for (const auto& [name, all] : {std::pair{"llama3-8b.toml", 15e12},
                                  {"llama3-70b.toml", 15e12},
                                  {"llama3-405b.toml", 15e12},
                                  {"gpt2-124m.toml", 10e9},
                                  {"llama3-1b.toml", 100e9},
                                  {"qwen3-8b.toml", 1e12}}) {
    const config::RunConfig config = config::load_run_file(TRIREME_SOURCE_DIR "/inputs/" + std::string(name));
    const auto tokens = static_cast<double>(config.batch.global * config.data.seq_len);
    EXPECT_EQ(config.train.steps, static_cast<std::int64_t>(std::ceil(all / tokens))) << name;
  }
}

}  // namespace
}  // namespace trireme::planner
