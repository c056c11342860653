// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/init/first_run_file.hpp"
#include "trireme/config/run_config.hpp"

namespace trireme::cli {

/// A run file made from another trainer's configuration.
struct TranslatedRun {
  config::RunConfig config;                      ///< without run, data.train and data.validation
  Reasons reasons;                               ///< the field of each key, and where it differs
  std::vector<std::string> differences;          ///< of the training itself, with what comes nearest
  std::vector<std::string> without_counterpart;  ///< "field = value: reason"
  std::string assets;                            ///< folder of the tokenizer as the file names it; "": none
  bool validates = false;                        ///< whether data.validation is needed
};

/// Translates a job configuration of TorchTitan: the TOML of 2025 (`JobConfig`) and the dumps of `Trainer.Config` of
/// 2026. file: its name in messages. ranks: of the job, which default sizes depend on. with_model: whether the model is
/// that of the file. Every field is translated, or is listed in `without_counterpart`. Throws ConfigError.
[[nodiscard]] TranslatedRun translate_torchtitan(const nlohmann::json& job, const std::string& file, int ranks,
                                                 bool with_model);

}  // namespace trireme::cli
