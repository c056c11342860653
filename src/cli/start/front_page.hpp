// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "trireme/base/error.hpp"
#include "trireme/base/exit_report.hpp"

/// The page of `trireme --help`: the name and meaning of every command, in order.
namespace trireme::cli {

struct Listed {
  std::string_view name, meaning;
  bool uses_gpu = true;  ///< false: started without the libraries of CUDA
};
inline constexpr std::array commands{
    Listed{"init", "Write a commented run file for a model, data and a number of ranks."},
    Listed{"train", "Train what a run file describes: under mpirun or srun, or alone."},
    Listed{"plan", "Predict memory, traffic and schedule of a run on any number of ranks, without running it."},
    Listed{"submit", "Write and submit the Slurm job of a run file: trireme submit run.toml --nodes 8."},
    Listed{"supervise", "Restart a run within its Slurm job or host file, on healthy nodes.", false},
    Listed{"tokenize", "Make a token file from plain text or JSON lines.", false},
    Listed{"data", "Show the sources of a run: documents, tokens, epochs, duplicates, samples as text.", false},
    Listed{"generate", "Continue a text with a model."},
    Listed{"chat", "Talk with a chat model: messages line by line, replies as they come."},
    Listed{"models", "List the model families that can be trained, imported and exported.", false},
    Listed{"evaluate", "Loss, perplexity and bits per byte of a model on token files; multiple choice."},
    Listed{"report", "Show runs on one page: curves, memory, traffic, a step's timeline.", false},
    Listed{"export-metrics", "Write a run's metrics for Weights & Biases, MLflow or Prometheus.", false},
    Listed{"doctor", "Check MPI, cores, libraries and speed of this machine, and list what to repair."},
    Listed{"inspect", "Show what a checkpoint holds: step, mesh, model, tensors.", false},
    Listed{"verify", "Read every byte of a checkpoint against its checksums.", false},
    Listed{"export", "Write a checkpoint's weights as a Hugging Face directory.", false},
    Listed{"import", "Write a Hugging Face directory's weights as a checkpoint.", false},
    Listed{"completion", "Print a completion script for bash, which zsh's bashcompinit loads, too.", false},
    Listed{"man", "Write manual pages of all commands and of the run file's keys.", false},
};

/// Adds a command of that list to `app`.
inline CLI::App* add_command(CLI::App& app, std::string_view name) {
  const auto* const listed =
      std::find_if(commands.begin(), commands.end(), [&](const Listed& c) { return c.name == name; });
  invariant(listed != commands.end(), "a command is listed on the front page");
  return app.add_subcommand(std::string(name), std::string(listed->meaning));
}

/// Adds all of the page except the commands. version: the output of --version.
inline void describe_program(CLI::App& app, const std::string& version) {
  constexpr const char* about =
      "Trireme trains Llama-class language models on HPC clusters. Every training step is a schedule that can be "
      "printed, planned and verified.";
  constexpr const char* first_steps =
      "From text to a model:\n"
      "  trireme doctor                                                          check this machine\n"
      "  trireme tokenize --tokenizer bytes -o runs/data/quickstart.bin book.txt\n"
      "  trireme plan inputs/quickstart.toml --ranks 4                           memory and traffic of one rank\n"
      "  mpirun -n 4 --bind-to none trireme train inputs/quickstart.toml\n"
      "  trireme generate runs/quickstart/export --prompt \"In the beginning\"\n\n"
      "`trireme COMMAND --help` describes a command; `trireme train --help` lists every key of the run file.\n\n";
  app.description(about);
  app.require_subcommand(1);
  app.footer(std::string(first_steps) + "Exit codes:\n" + exit_code_table());
  app.set_version_flag("--version", version);
}

}  // namespace trireme::cli
