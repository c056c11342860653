// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/output_directory.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "trireme/base/error.hpp"
#include "trireme/base/log.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/checkpoint/file.hpp"
#include "trireme/checkpoint/huggingface.hpp"
#include "trireme/config/load.hpp"
#include "trireme/train/checkpointing.hpp"

namespace trireme::train {

namespace fs = std::filesystem;

namespace {

/// A directory that holds an earlier run is used to go on, or when the run file says so.
void check_earlier_run(const config::RunConfig& config) {
  if (config.run.overwrite) return;
  const fs::path metrics = fs::path(config.run.output) / "metrics.jsonl";
  const std::string& directory = config.checkpoint.directory;
  std::error_code error;
  const bool ran = fs::exists(metrics, error) && fs::file_size(metrics, error) > 0;
  const bool saved = !checkpoint::list_checkpoints(directory).empty();
  if (config.checkpoint.resume == "none" && (ran || saved))
    throw CheckpointError(fmt::format(
        "{} holds an earlier run, and checkpoint.resume is none. Set checkpoint.resume = auto to go on with "
        "it, another {}, or run.overwrite = true to begin anew.",
        saved ? directory : config.run.output, saved ? "checkpoint.directory" : "run.output"));
  if (config.checkpoint.resume != "auto" || !ran || saved) return;
  if (fs::is_directory(directory, error))
    log::warning(
        fmt::format("the earlier run in {} ended before its first checkpoint: beginning anew", config.run.output));
  else
    throw CheckpointError(
        fmt::format("run.output {} holds an earlier run ({}), and there is no checkpoint to continue it from. Set "
                    "another run.output, or run.overwrite = true to begin anew.",
                    config.run.output, metrics.string()));
}

void create(const char* what, const std::string& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error)
    throw WriteError(fmt::format("{} {}: cannot be created: {}. Set {} to a directory that you may write to.", what,
                                 directory, error.message(), what));
}

/// The directory of checkpoints, made and tried: a run must not find out after hours.
void prepare_checkpoint_directory(const config::RunConfig& config) {
  if (!saves_checkpoints(config)) return;
  create("checkpoint.directory", config.checkpoint.directory);
  const std::string probe = config.checkpoint.directory + "/.write-probe";
  checkpoint::write_text(probe, "");
  std::error_code error;
  fs::remove(probe, error);
}

}  // namespace

void check_output_directory(const config::RunConfig& config) {
  check_earlier_run(config);
  if (config.run.export_when != config::Export::never)
    checkpoint::check_export_target(config.run.output + "/export", true);
}

void create_output_directory(const config::RunConfig& config) { create("run.output", config.run.output); }

void prepare_output_directory(const config::RunConfig& config) {
  check_output_directory(config);
  create_output_directory(config);
  checkpoint::write_text(config.run.output + "/run.toml", config::print_run_file(config));
  prepare_checkpoint_directory(config);
}

}  // namespace trireme::train
