// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "support/jobs.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/checkpoint/load/load.hpp"
#include "trireme/train/run.hpp"

/// Runs that stop and resume, for tests of their state.
namespace trireme::train {

constexpr int restart_steps = 6;

class Restart : public testing::Test {
 protected:
  /// A run of `last` steps of six, in its own directory.
  [[nodiscard]] config::RunConfig run(const std::string& name, int last) const {
    config::RunConfig config = test::odd_run(files_, last);
    config.lr.end_step = restart_steps;
    config.run.output = root_ + "/" + name;
    config.checkpoint.directory = config.run.output + "/checkpoints";
    config.data.shuffle = true;
    return config;
  }

  /// Trains on the first `ranks` ranks.
  ExitCode train(config::RunConfig config, int ranks, int replicate = 1, int tensor = 1) const {
    config.mesh.replicate = replicate;
    config.mesh.tensor = tensor;
    const mpi::Communicator some = world_.split(world_.rank() < ranks ? 0 : 1, world_.rank());
    const ExitCode code = world_.rank() < ranks ? run_training(config, some) : ExitCode::done;
    MPI_Barrier(world_.handle());
    return code;
  }

  /// Losses and norms by step; every step has to be there once.
  [[nodiscard]] static test::Curve curve(const config::RunConfig& config) {
    test::Curve curve;
    std::ifstream file(config.run.output + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const auto row = nlohmann::json::parse(line);
      curve.losses.push_back(row.at("loss"));
      curve.grad_norms.push_back(row.at("grad_norm"));
      EXPECT_EQ(row.at("step"), curve.losses.size());
    }
    return curve;
  }

  /// Everything in a checkpoint, in full.
  [[nodiscard]] static std::map<std::string, std::vector<float>> tensors(const config::RunConfig& config, int step) {
    const std::string path = config.checkpoint.directory + "/" + checkpoint::step_name(step);
    checkpoint::Reader reader(path, checkpoint::open_checkpoint(path));
    std::map<std::string, std::vector<float>> all;
    for (const checkpoint::Quantity quantity : checkpoint::all_quantities)
      for (std::size_t p = 0; p < reader.manifest().parameters.size(); ++p) {
        if (!checkpoint::has(reader.manifest(), quantity, p)) continue;
        const checkpoint::SavedParameter& parameter = reader.manifest().parameters[p];
        auto& values = all[std::string(to_text(quantity)) + "/" + parameter.name];
        values.resize(static_cast<std::size_t>(parameter.elements()));
        reader.read(quantity, parameter.name, {.length = parameter.elements()}, values);
      }
    return all;
  }

  static void expect_same_end(const config::RunConfig& one, const config::RunConfig& other) {
    EXPECT_EQ(curve(one), curve(other));
    EXPECT_EQ(curve(one).losses.size(), static_cast<std::size_t>(restart_steps));
    const auto a = tensors(one, restart_steps);
    const auto b = tensors(other, restart_steps);
    ASSERT_EQ(a.size(), b.size());
    for (const auto& [name, values] : a)
      EXPECT_EQ(std::memcmp(values.data(), b.at(name).data(), 4 * values.size()), 0) << name;
  }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
  test::TokenFiles files_{world_, 257};
  const test::SharedDirectory directory_{world_};
  const std::string& root_ = directory_.path();
};
}  // namespace trireme::train
