// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace trireme::cli {

/// The command-line arguments that describe a run.
struct RunFileArguments {
  std::string path;
  std::vector<std::string> overrides;  ///< --set
};

struct TrainArguments {
  RunFileArguments run_file;
  std::int64_t try_steps = 0;   ///< 0: no trial
  std::int64_t log_every = 10;  ///< of standard output
};

/// Adds `train` with its options, which go to `arguments`, and its help.
CLI::App* add_train_command(CLI::App& app, TrainArguments& arguments);

}  // namespace trireme::cli
