// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/report/run_record.hpp"

/// The metrics of a run in the files of other tools.
namespace trireme::report {

/// A file to write.
struct ExportedFile {
  std::string path;  ///< relative to the directory of the export; an empty directory where it ends with "/"
  std::string bytes;
};

/// Offline run of Weights & Biases: the transaction log that `wandb sync` uploads (LevelDB's log format with records of
/// wandb_internal.proto), a history row for each step. The run's id follows from its name and start: exported again, it
/// replaces the run.
[[nodiscard]] std::vector<ExportedFile> wandb_files(const RunRecord& run, const std::string& project);

/// MLflow's file store: the experiment `project`, and in it the run with its metrics, parameters and tags.
/// directory: absolute, where the files are written to.
[[nodiscard]] std::vector<ExportedFile> mlflow_files(const RunRecord& run, const std::string& project,
                                                     const std::string& directory);

/// Last value of each metric in Prometheus' text format, without times, as node_exporter's textfile collector reads it.
[[nodiscard]] std::string prometheus_text(const RunRecord& run);

}  // namespace trireme::report
