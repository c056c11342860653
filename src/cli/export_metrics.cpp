// SPDX-License-Identifier: Apache-2.0
//
// trireme export-metrics: metrics.jsonl in the files of other tools.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "cli/start/front_page.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/base/io/make_directories.hpp"
#include "trireme/base/io/output.hpp"
#include "trireme/base/text.hpp"
#include "trireme/report/export.hpp"

namespace trireme::cli {
namespace {

namespace files = std::filesystem;

struct MetricsExportArguments {
  std::string run, tool, output, project = "trireme";
};

void write(const std::string& directory, const std::vector<report::ExportedFile>& exported) {
  for (const report::ExportedFile& file : exported) {
    const std::string path = directory + "/" + file.path;
    io::make_directory_of(path);
    if (!path.ends_with('/')) io::replace_text(path, file.bytes);
  }
}

int export_metrics(const MetricsExportArguments& arguments) {
  const report::RunRecord run = report::read_run(arguments.run);
  const bool prometheus = arguments.tool == "prometheus";
  std::string output = arguments.output;
  if (output.empty())
    output = prometheus ? arguments.run + "/trireme.prom" : arguments.tool == "wandb" ? "wandb" : "mlruns";
  const io::PathKind kind = io::status_of(output).kind;
  if (prometheus && kind == io::PathKind::directory)
    throw WriteError(fmt::format("cannot write {}: Is a directory; name a file in it", output));
  if (!prometheus && kind == io::PathKind::file)
    throw WriteError(fmt::format("cannot write to {}: is a file; name a directory", output));
  if (prometheus) {
    const std::vector<std::string> inputs = report::files_of_run(arguments.run);
    io::check_output_is_no_input("export-metrics", output, inputs);
    io::make_directory_of(output);
    io::replace_text(output, report::prometheus_text(run));
    fmt::print("wrote {}: for node_exporter --collector.textfile.directory\n", printable(output));
    return 0;
  }
  if (arguments.tool == "wandb") {
    const auto exported = report::wandb_files(run, arguments.project);
    write(output, exported);
    fmt::print("wrote {0}\nupload it with: wandb sync {0}\n",
               printable(files::path(output + "/" + exported.front().path).parent_path().string()));
    return 0;
  }
  write(output, report::mlflow_files(run, arguments.project, files::absolute(output).lexically_normal().string()));
  fmt::print(
      "wrote the run to {0}\nshow it with: MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri {0}\n"
      "or take it into a database: mlflow migrate-filestore --source {0} --target sqlite:///mlflow.db\n",
      printable(output));
  return 0;
}

}  // namespace

void add_export_metrics(CLI::App& app, Action& chosen) {
  const auto arguments = std::make_shared<MetricsExportArguments>();
  CLI::App* command = add_command(app, "export-metrics");
  command->add_option("RUN", arguments->run, "The run.output of a run, also of one that has not ended")->required();
  command->add_option("--to", arguments->tool, "The tool that reads the files: wandb, mlflow or prometheus")
      ->required()
      ->check(CLI::IsMember({"wandb", "mlflow", "prometheus"}));
  command->add_option(
      "-o,--output", arguments->output,
      "Directory of wandb or MLflow, or the file for Prometheus (default: wandb, mlruns, RUN/trireme.prom)");
  command->add_option("--project", arguments->project, "wandb's project or MLflow's experiment")->capture_default_str();
  command->footer(
      "No network and no Python are needed. Exported again, a run replaces its earlier export.\n\n"
      "Examples:\n"
      "  trireme export-metrics runs/quickstart --to wandb         # then: wandb sync wandb/offline-run-...\n"
      "  trireme export-metrics runs/quickstart --to mlflow        # writes to mlruns\n"
      "  trireme export-metrics runs/quickstart --to prometheus    # a file for node_exporter");
  command->callback([&chosen, arguments] { chosen = [arguments] { return export_metrics(*arguments); }; });
}

}  // namespace trireme::cli
