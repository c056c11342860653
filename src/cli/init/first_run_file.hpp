// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "trireme/config/run_config.hpp"
#include "trireme/planner/search/search.hpp"

/// A first run file for a model, data and ranks, with a reason for each key.
namespace trireme::cli {

/// Inputs of the choice of keys.
struct FirstRun {
  config::RunConfig config;     ///< run, model and data as they will be
  config::Model sizes;          ///< the model's, also where `config` takes them from weights
  std::int64_t samples = 0;     ///< of data.train, of data.seq_len tokens
  std::int64_t validation = 0;  ///< samples of data.validation
  int ranks = 1;
  planner::Machine machine;
};

/// The reasons for keys, by "section.key".
using Reasons = std::map<std::string, std::string>;

/// Chooses batch, learning rate, steps and saves by the model's size and the data's (Brown et al. 2020, table 2.1,
/// whose smallest model has 125 million parameters; smaller ones by own runs).
void choose_training(FirstRun& run, Reasons& reasons);

/// Chooses mesh, microbatch, sync policy and memory settings: the fastest that the planner finds to fit. Returns its
/// prediction. Throws ConfigError when nothing fits.
[[nodiscard]] planner::Found choose_settings(FirstRun& run, Reasons& reasons);

/// The keys of `config` with reasons or non-default values, each with its reason or its meaning; `about` precedes them
/// as comments.
[[nodiscard]] std::string first_run_text(const config::RunConfig& config, const Reasons& reasons,
                                         const std::string& about);

}  // namespace trireme::cli
