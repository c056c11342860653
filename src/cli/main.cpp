// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "trireme/base/build_info.hpp"
#include "trireme/base/error.hpp"
#include "trireme/cli/commands.hpp"
#include "trireme/comm/abort.hpp"

namespace {

using namespace trireme;

constexpr const char* about =
    "Trireme trains Llama-class language models on clusters: full sharding per block, one schedule per step that can be read.";
constexpr const char* exit_codes =
    "Exit codes: 0 done, 1 a bug in Trireme, 2 usage or run file, 3 token files, 4 checkpoints and weight directories,\n"
    "5 environment (MPI, libraries, memory), 6 numerics, 7 a hang, 8 failed writes, 75 saved on a signal: requeue me, 128+n signals.";

std::string version_text() {
  const BuildInfo& info = build_info();
  std::string text = fmt::format("trireme {} ({})\n{} {} build, {}\n", info.version, info.git_hash, info.compiler, info.build_type, info.arch);
  for (const LibraryVersion& library : info.libraries) text += fmt::format("{} {}\n", library.name, library.version);
  return text;
}

/// This build's instructions must exist on this CPU: a clear end instead of an illegal instruction later.
void check_cpu() {
  if (build_info().arch == "x86-64-v3" && !(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")))
    throw EnvironmentError("This build needs a CPU with AVX2 and FMA (x86-64-v3). Configure with -DTRIREME_ARCH= of an older one, such as x86-64-v2.");
}

int run(int argc, char** argv) {
  CLI::App app{about, "trireme"};
  app.require_subcommand(1);
  app.footer(exit_codes);
  app.set_version_flag("--version", version_text());
  cli::Action chosen;
  cli::add_train(app, chosen);
  cli::add_plan(app, chosen);
  cli::add_tokenize(app, chosen);
  cli::add_generate(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& mistake) {
    fmt::print(stderr, "trireme: error: {}. `trireme --help` shows what there is.\n", mistake.what());
    return static_cast<int>(ExitCode::usage);
  }
  check_cpu();
  return chosen();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (...) {
    comm::abort_job_for_current_exception();
  }
}
