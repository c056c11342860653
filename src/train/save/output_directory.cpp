// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/save/output_directory.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "trireme/base/error.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/base/io/handled_files.hpp"
#include "trireme/base/io/make_directories.hpp"
#include "trireme/base/io/output.hpp"
#include "trireme/base/log.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/config/load.hpp"
#include "trireme/huggingface/huggingface.hpp"
#include "trireme/train/save/checkpointing.hpp"

namespace trireme::train {

namespace fs = std::filesystem;

namespace {

std::string metrics_of(const config::RunConfig& config) { return fs::path(config.run.output) / "metrics.jsonl"; }

/// Files of an earlier run in the directories of this one.
struct Earlier {
  bool ran, saved;
};
Earlier earlier_run(const config::RunConfig& config) {
  const io::PathStatus metrics = io::status_of(metrics_of(config));
  return {.ran = metrics.kind != io::PathKind::nothing && metrics.bytes > 0,
          .saved = !checkpoint::list_checkpoints(config.checkpoint.directory).empty()};
}

/// A directory that holds an earlier run is used to resume, or when the run file allows it.
void check_earlier_run(const config::RunConfig& config) {
  if (config.run.overwrite) return;
  const std::string& directory = config.checkpoint.directory;
  const auto [ran, saved] = earlier_run(config);
  if (config.checkpoint.resume == "none" && (ran || saved))
    throw CheckpointError(
        fmt::format("{} holds an earlier run, but checkpoint.resume is none. Set checkpoint.resume = auto to resume "
                    "it, another {}, or run.overwrite = true to start over.",
                    saved ? directory : config.run.output, saved ? "checkpoint.directory" : "run.output"));
  if (config.checkpoint.resume != "auto" || !ran || saved) return;
  if (std::error_code error; !fs::is_directory(directory, error))
    throw CheckpointError(
        fmt::format("run.output {} holds an earlier run ({}), and there is no checkpoint to continue it from: "
                    "checkpoint.directory {} does not exist. Set it to where that run saved, another run.output, or "
                    "run.overwrite = true to start over.",
                    config.run.output, metrics_of(config), directory));
}

/// Whether a run began here and saved nothing. For the holder of the lock: otherwise the run may be in progress.
bool begins_again(const config::RunConfig& config) {
  if (config.run.overwrite || config.checkpoint.resume != "auto") return false;
  const auto [ran, saved] = earlier_run(config);
  return ran && !saved;
}

void create(const char* what, const std::string& directory) {
  if (const std::error_code error = io::make_directories(directory))
    throw WriteError(fmt::format("{} {}: cannot be created: {}. Set {} to a directory that you may write to.", what,
                                 directory, error.message(), what));
}

/// The directory of checkpoints, made and tried: a run must not find out after hours.
void prepare_checkpoint_directory(const config::RunConfig& config) {
  if (!saves_checkpoints(config)) return;
  create("checkpoint.directory", config.checkpoint.directory);
  const std::string probe = config.checkpoint.directory + "/.write-probe";
  io::write_text(probe, "");
  std::error_code error;
  io::remove_file(probe, error);
}

/// Whether a file may be replaced: a run wrote it, and it is not the run file that was given.
bool replaceable(const fs::path& path, const std::string& given, std::string_view first_line) {
  std::error_code error;
  const fs::file_status found = fs::symlink_status(path, error);
  if (!fs::exists(found)) return !error || error == std::errc::no_such_file_or_directory;
  std::string line;  // a link may lead to the file of another run
  return fs::is_regular_file(found) && !io::same_file(path.string(), given) &&
         std::getline(std::ifstream(path), line) && line == first_line;
}

/// The files that a run writes by these names replace earlier ones.
void check_files_are_no_input(const config::RunConfig& config) {
  std::vector<std::string> inputs;
  for (const std::vector<config::TokenSource>& sources : {config.data.train, config.data.validation})
    for (const config::TokenSource& source : sources) inputs.push_back(source.path);
  for (const char* name :
       {"metrics.jsonl", "report.html", "step_times.json", "goodput.jsonl", "run.toml", "run.effective.toml"})
    io::check_output_is_no_input("train", config.run.output + "/" + name, inputs);
}

/// An export takes the place of the one before, but not of the weights that the run begins with.
void check_export_is_no_input(const config::RunConfig& config) {
  if (config.model.from.empty()) return;
  std::error_code error;
  const fs::path from = fs::weakly_canonical(config.model.from, error);
  const fs::path name = from.has_filename() ? from.filename() : from.parent_path().filename();
  const fs::path parent = from.has_filename() ? from.parent_path() : from.parent_path().parent_path();
  if (io::same_file(parent.string(), config.run.output) && name.string().starts_with("export"))
    throw CheckpointError(
        fmt::format("model.from = {} would be replaced by this run's export. Set another run.output, or run.export = "
                    "never.",
                    config.model.from));
}

}  // namespace

void check_output_directory(const config::RunConfig& config) {
  check_files_are_no_input(config);
  check_earlier_run(config);
  if (config.run.export_when == config::Export::never) return;
  check_export_is_no_input(config);
  huggingface::check_export_target(config.run.output + "/export", true);
}

void create_output_directory(const config::RunConfig& config) { create("run.output", config.run.output); }

void prepare_output_directory(const config::RunConfig& config) {
  check_output_directory(config);
  if (begins_again(config))
    log::warning(
        fmt::format("the earlier run in {} ended before its first checkpoint: starting at step 0", config.run.output));
  create_output_directory(config);
  prepare_checkpoint_directory(config);
}

void write_run_file(const config::RunConfig& config, const std::string& given) {
  const fs::path usual = fs::path(config.run.output) / "run.toml";
  const fs::path other = fs::path(config.run.output) / "run.effective.toml";
  const std::string text = config::print_run_file(config);
  for (const fs::path& path : {usual, other}) {
    if (!replaceable(path, given, std::string_view(text).substr(0, text.find('\n')))) continue;
    io::replace_text(path.string(), text);
    if (path != usual)
      log::info(
          fmt::format("{} is yours and stays as it is; the effective run file is {}", usual.string(), path.string()));
    return;
  }
  log::warning(
      fmt::format("the effective run file is not written: {} and {} are yours", usual.string(), other.string()));
}

}  // namespace trireme::train
