// SPDX-License-Identifier: Apache-2.0
#include "cli/start/train_arguments.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "cli/start/front_page.hpp"
#include "cli/start/help_text.hpp"
#include "cli/start/numbers.hpp"
#include "trireme/base/text.hpp"
#include "trireme/config/load.hpp"
#include "trireme/config/options.hpp"

namespace trireme::cli {
namespace {

constexpr const char* examples =
    "Examples:\n"
    "  mpirun -n 4 --bind-to none trireme train inputs/quickstart.toml\n"
    "  srun trireme train run.toml --set train.steps=1000 --set run.output=runs/second\n"
    "  trireme train run.toml                    one rank\n"
    "  mpirun -n 4 trireme train run.toml --try 3    three steps that leave nothing behind: speed and memory\n"
    "  trireme plan run.toml --ranks 64          what it would hold and move, without running it\n\n"
    "It leaves behind, in run.output: run.toml (the effective run file), metrics.jsonl (a line a step), tensorboard/\n"
    "(the same as curves, with metrics.tensorboard), export/ (weights for trireme generate and Hugging Face, with\n"
    "run.export). TRIREME_LOG=debug logs more.\n";

/// The keys of one section, where help is requested with its name (`train --help optimizer`), else examples and all
/// keys.
std::string keys_help(const std::string& word) {
  const std::vector<std::string> sections = config::section_names();
  if (std::find(sections.begin(), sections.end(), word) != sections.end())
    return "Keys of the run file:\n" + config::explain_options(help_columns(), word);
  return fmt::format("{}\nKeys of the run file (trireme train --help SECTION lists those of {}):\n{}", examples,
                     join(sections, ", "), config::explain_options(help_columns(), ""));
}

}  // namespace

CLI::App* add_train_command(CLI::App& app, TrainArguments& arguments) {
  CLI::App* command = add_command(app, "train");
  command->add_option("RUN.toml", arguments.run_file.path, "The run file")->required();
  command
      ->add_option("--set", arguments.run_file.overrides,
                   "override a key of the run file: section.key=value; may be repeated")
      ->allow_extra_args(false);
  command
      ->add_option("--try", arguments.try_steps,
                   "train only the first N steps (3 show enough), keep nothing, and report speed and memory")
      ->check(whole_number(1, 1000));
  command
      ->add_option("--log-every", arguments.log_every,
                   "print a line every N steps and once a minute, besides the first, the last and skipped steps; "
                   "a terminal has one line that is rewritten, and metrics.jsonl has every step (metrics.every)")
      ->capture_default_str()
      ->check(whole_number(1, std::numeric_limits<int>::max()));
  command->footer([&arguments] { return keys_help(arguments.run_file.path); });
  return command;
}

}  // namespace trireme::cli
