// SPDX-License-Identifier: Apache-2.0
//
// Every value of every key that shapes a run, with and without a pipeline and experts: what `trireme plan` accepts is
// trained for two steps, what it refuses `trireme train` refuses as well.
//
// ranks: 4
//
// timeout: 900
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "support/jobs.hpp"
#include "train/preflight.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/text.hpp"
#include "trireme/checkpoint/load/first_parameters.hpp"
#include "trireme/config/load.hpp"
#include "trireme/config/options.hpp"
#include "trireme/mpi/broadcast.hpp"
#include "trireme/mpi/collective_try.hpp"
#include "trireme/planner/choose.hpp"
#include "trireme/planner/pipeline.hpp"
#include "trireme/planner/time/predict.hpp"
#include "trireme/schedule/passes/build.hpp"
#include "trireme/train/run.hpp"

namespace trireme::train::every_value_mpi_test {
namespace {

const std::set<std::string> shaping{"mesh",      "context", "pipeline", "sync", "precision", "memory", "loss",
                                    "optimizer", "lr",      "device",   "comm", "data",      "batch",  "model"};
/// Paths, and keys with values that no list holds; a vocabulary that the tokens leave.
const std::set<std::string> other{"data.train",       "data.validation",      "data.choices",
                                  "data.tokenizer",   "model.from",           "data.format",
                                  "model.vocab_size", "comm.timeout_seconds", "device.threads"};

/// Values to try: every name of a choice, both of a flag, a few numbers.
std::vector<std::string> values_of(const config::Option& option) {
  std::vector<std::string> values;
  std::string rest = option.type;
  for (std::size_t end = 0; end != std::string::npos; rest = end == std::string::npos ? "" : rest.substr(end + 3)) {
    end = rest.find(" | ");
    const std::string word = rest.substr(0, end);
    if (word == "integer" || word == "bytes")
      values.insert(values.end(), {"1", "2"});
    else if (word == "number")
      values.insert(values.end(), {"0.5", "2"});
    else if (word == "integers")
      values.insert(values.end(), {"[1,3]", "[2,2]"});
    else if (word == "strings" || word == "string" || word == "table" || word == "tables")
      continue;
    else
      values.push_back(word);
  }
  return values;
}

const std::string environment = "no GPU here: ";

/// Verdict of a command on a run file.
struct Verdict {
  bool accepted = false;
  std::string message;
};

/// `trireme plan`, as src/cli/plan.cpp does it.
Verdict plan(config::RunConfig config, int ranks) try {
  config = checkpoint::complete_model(config);
  const auto [mesh, model] = planner::trainable(config, ranks);
  config.sync =
      planner::choose_sync(config, model, mesh, planner::step_seconds_on(planner::machine_of("", Bytes{}), ranks)).sync;
  if (config.mesh.pipeline > 1)
    (void)planner::plan_pipeline(config, mesh);
  else
    (void)schedule::build_step(model, mesh.accumulation, schedule::policy_of(config, mesh));
  return {.accepted = true};
} catch (const ConfigError& error) {
  return {.message = error.what()};
}

class EveryValue : public testing::Test {
 protected:
  [[nodiscard]] std::string base(const std::string& more) const {
    return "[model]\nvocab_size = 257\nhidden_size = 32\nintermediate_size = 64\nlayers = 4\nheads = 4\n" + more +
           "[data]\ntrain = \"" + files_.sources_to_pack(true).back().path +
           "\"\nseq_len = 8\ndocument_end = 7\n[batch]\nglobal = 16\nmicro = 1\n[train]\nsteps = "
           "2\n[precision]\ncompute = \"fp32\"\n"
           "[memory]\nbudget = \"1GiB\"\n[device]\ntype = \"cpu\"\nthreads = 1\n[checkpoint]\nat_end = false\n"
           "[metrics]\nreport = false\n[run]\noutput = \"" +
           directory_.path() + "/out\"\noverwrite = true\n";
  }

  /// Trains on all ranks; refused where the start is.
  Verdict train(const config::RunConfig& config) {
    try {
      const std::string text = mpi::on_first_rank(world_, "check the run file",
                                                  [&] { return preflight(config, world_.size(), world_.size()); });
      const config::RunConfig effective = config::parse_run_file(text, "effective");
      EXPECT_EQ(run_training(effective, world_), ExitCode::done);
    } catch (const mpi::CollectiveError& error) {
      return {.message = (error.code() == ExitCode::environment ? environment : "") + error.what()};
    } catch (const EnvironmentError& error) {  // on all ranks alike
      return {.message = environment + error.what()};
    }
    return {.accepted = true};
  }

  /// Both commands on `text` with one key set otherwise.
  void compare(const std::string& text, const std::vector<std::string>& set) {
    std::optional<config::RunConfig> config;
    try {
      config = config::parse_run_file(text, "run.toml", set);
    } catch (const ConfigError&) {
      ++unreadable_;  // for both
      return;
    }
    const Verdict planned = plan(*config, world_.size());
    if (planned.accepted) ++accepted_;
    const Verdict trained = train(*config);
    if (trained.message.starts_with(environment)) return;
    EXPECT_EQ(trained.accepted, planned.accepted) << "plan: " << planned.message << "\ntrain: " << trained.message;
    if (!trained.accepted || world_.rank() != 0) return;
    std::ifstream file(config->run.output + "/metrics.jsonl");
    int steps = 0;
    for (std::string line; std::getline(file, line); ++steps)
      EXPECT_TRUE(nlohmann::json::parse(line)["loss"].is_number()) << line;
    EXPECT_EQ(steps, 2);
  }

  void compare_all(const std::string& text, const std::set<std::string>& sections) {
    for (const config::Option& option : config::options()) {
      if (!sections.contains(option.section) || other.contains(option.name())) continue;
      for (const std::string& value : values_of(option)) {
        SCOPED_TRACE(option.name() + "=" + value);
        compare(text, {option.name() + "=" + value});
      }
    }
  }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
  test::TokenFiles files_{world_, 257};
  test::SharedDirectory directory_{world_};
  int accepted_ = 0, unreadable_ = 0;
};

TEST_F(EveryValue, ThatPlanAcceptsIsTrained) {
  compare_all(base(""), shaping);
  EXPECT_GT(accepted_, 60);
}

TEST_F(EveryValue, ThatPlanAcceptsIsTrainedWithAPipeline) {
  compare_all(base("[mesh]\npipeline = 2\n"), shaping);
  EXPECT_GT(accepted_, 50);
}

TEST_F(EveryValue, ThatPlanAcceptsIsTrainedWithExperts) {
  const std::string experts = "architecture = \"mixtral\"\nexperts = 4\nexperts_per_token = 2\n";
  compare_all(base(experts), {"mesh", "sync", "memory", "loss"});
  compare_all(base(experts + "[mesh]\npipeline = 2\n"), {"mesh", "sync", "loss"});
  EXPECT_GT(accepted_, 50);
}

}  // namespace
}  // namespace trireme::train::every_value_mpi_test

// Fault, plans: `plan` accepts a value that `train` refuses -> none: both use `planner::trainable`
