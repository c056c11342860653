// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/output_directory.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/file.hpp"
#include "trireme/checkpoint/huggingface.hpp"
#include "trireme/config/load.hpp"

namespace trireme::train {

namespace fs = std::filesystem;

void check_output_directory(const config::RunConfig& config) {
  const fs::path metrics = fs::path(config.run.output) / "metrics.jsonl";
  std::error_code error;
  if (!config.run.overwrite && fs::exists(metrics, error) && fs::file_size(metrics, error) > 0)
    throw CheckpointError(
        fmt::format("run.output {} holds an earlier run ({}), and there is no checkpoint to continue it from. Set "
                    "another run.output, or run.overwrite = true to begin anew.",
                    config.run.output, metrics.string()));
  if (config.run.export_when != config::Export::never)
    checkpoint::check_export_target(config.run.output + "/export", true);
}

void prepare_output_directory(const config::RunConfig& config) {
  check_output_directory(config);
  std::error_code error;
  fs::create_directories(config.run.output, error);
  if (error)
    throw WriteError(
        fmt::format("run.output {}: cannot be created: {}. Set run.output to a directory that you may write to.",
                    config.run.output, error.message()));
  checkpoint::write_text(config.run.output + "/run.toml", config::print_run_file(config));
}

}  // namespace trireme::train
