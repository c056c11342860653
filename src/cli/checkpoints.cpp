// SPDX-License-Identifier: Apache-2.0
//
// inspect, verify, import and export: commands on checkpoints that do not train. One process.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "cli/inference/inference.hpp"
#include "cli/start/front_page.hpp"
#include "cli/start/with_mpi.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/output.hpp"
#include "trireme/base/text.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/checkpoint/load/load.hpp"
#include "trireme/checkpoint/load/verify.hpp"
#include "trireme/checkpoint/load/weights.hpp"
#include "trireme/checkpoint/model_metadata.hpp"
#include "trireme/huggingface/huggingface.hpp"
#include "trireme/mpi/collective_try.hpp"
#include "trireme/tokenizer/files.hpp"

namespace trireme::cli {
namespace {

int inspect(const std::string& path) {
  fmt::print("{}", printable_lines(checkpoint::describe(path)));  // a checkpoint may be of others
  return 0;
}

int verify(const std::string& path) {
  checkpoint::require_checkpoint(path);
  const std::vector<std::string> found = checkpoint::verify(path);
  for (const std::string& line : found) fmt::print("{}\n", printable(line));
  std::fflush(stdout);  // the end of a failed command does not
  if (!found.empty())
    throw CheckpointError(
        fmt::format("{}: {} damage{} found; use another checkpoint", path, found.size(), found.size() == 1 ? "" : "s"));
  fmt::print("{}: every checksum fits\n", path);
  return 0;
}

struct ExportArguments {
  std::string checkpoint;
  std::string directory;
  std::string dtype = "bf16";
  std::string tokenizer;  ///< empty: the checkpoint's
  bool overwrite = false;
};

/// The spec of the tokenizer stored with the weights; "" if the checkpoint has none.
std::string exported_tokenizer(const ExportArguments& arguments) {
  const std::string& given = arguments.tokenizer;
  if (given == "none") return "";
  const checkpoint::Weights weights = checkpoint::Weights::open(arguments.checkpoint);
  if (given.empty()) return weights.generation().tokenizer.empty() ? "" : weights.tokenizer();
  warn_of_another_tokenizer(arguments.checkpoint, weights, given, *tokenizer::make_tokenizer(given));
  return given;
}

/// The directory is replaced as a whole, including inputs inside it.
void check_output(const ExportArguments& arguments, const std::string& tokenizer) {
  std::vector<std::string> inputs{arguments.checkpoint};
  if (!tokenizer.empty() && tokenizer != "bytes") {
    const std::string file = tokenizer::path_of_spec(tokenizer);
    inputs.push_back(std::filesystem::path(file).parent_path().string());
  }
  io::check_output_is_no_input("export", arguments.directory, inputs);
}

int export_weights(const ExportArguments& arguments) {
  const checkpoint::Manifest manifest = checkpoint::open_checkpoint(arguments.checkpoint);
  const std::string name = checkpoint::index_path(arguments.checkpoint);
  const model::Model model = model::build(checkpoint::model_of(name, manifest));
  checkpoint::check_model(arguments.checkpoint, manifest, model);
  checkpoint::Reader reader(arguments.checkpoint, manifest);
  std::vector<float> whole;
  huggingface::HfWriteOptions options{.dtype = arguments.dtype == "bf16" ? DType::bf16 : DType::fp32,
                                      .overwrite = arguments.overwrite};
  checkpoint::read_generation(name, manifest.state.generation, options);
  const std::string tokenizer = exported_tokenizer(arguments);
  check_output(arguments, tokenizer);
  options.tokenizer_files =
      tokenizer::export_files(tokenizer, arguments.tokenizer.empty() ? options.tokenizer_library : "");
  huggingface::write_huggingface(
      arguments.directory, model, options, [&](model::ParamRef ref) -> std::span<const float> {
        const model::Parameter& parameter = model[ref];
        whole.resize(static_cast<std::size_t>(parameter.elements()));
        reader.read(checkpoint::Quantity::parameter, parameter.name, {.length = parameter.elements()}, whole);
        return whole;
      });
  fmt::print("exported {} at step {} to {}\n", arguments.checkpoint, manifest.state.step, arguments.directory);
  return 0;
}

int import_weights(const std::string& from, const std::string& path) {
  return with_mpi([&](const mpi::Communicator& world) {
    mpi::collective_try(world, "import the weights", [&] {
      if (world.size() > 1)
        throw ConfigError(fmt::format("import runs on one rank, not on {}. Start it without mpirun.", world.size()));
      io::check_output_is_no_input("import", path, std::vector{from});
      const checkpoint::Weights weights = checkpoint::Weights::open(from);
      weights.warn_of_unread_keys();
      const checkpoint::Saved saved = checkpoint::import_weights(world, weights, path);
      fmt::print("imported {} as {} ({})\n", from, path, to_text(saved.bytes));
    });
    return 0;
  });
}

/// A subcommand whose only argument is a checkpoint.
void add_look(CLI::App& app, Action& chosen, const std::string& name, int (*look)(const std::string&)) {
  const auto path = std::make_shared<std::string>();
  CLI::App* command = add_command(app, name);
  command->add_option("CHECKPOINT", *path, "A checkpoint, such as runs/first/checkpoints/step-00000100")->required();
  command->footer(fmt::format("Example:\n  trireme {} runs/book/checkpoints/step-00001000", name));
  command->callback([&chosen, path, look] { chosen = [path, look] { return look(*path); }; });
}

}  // namespace

void add_checkpoints(CLI::App& app, Action& chosen) {
  add_look(app, chosen, "inspect", inspect);
  add_look(app, chosen, "verify", verify);
  const auto a = std::make_shared<ExportArguments>();
  CLI::App* command = add_command(app, "export");
  command->add_option("CHECKPOINT", a->checkpoint, "A checkpoint")->required();
  command->add_option("-o,--output", a->directory, "The directory to write")->required();
  command->add_option("--dtype", a->dtype, "dtype of the weights")
      ->check(CLI::IsMember({"bf16", "fp32"}))
      ->capture_default_str();
  command->add_option(
      "--tokenizer", a->tokenizer,
      "bytes, spm:PATH, hf:PATH or none: the tokenizer to export with the weights; default: the checkpoint's");
  command->add_flag("--overwrite", a->overwrite, "Replace an earlier export");
  command->footer("Example:\n  trireme export runs/book/checkpoints/step-00001000 -o book-hf --dtype fp32");
  command->callback([&chosen, a] { chosen = [a] { return export_weights(*a); }; });

  const auto from = std::make_shared<std::string>();
  const auto path = std::make_shared<std::string>();
  CLI::App* importer = add_command(app, "import");
  importer->add_option("HF_DIR", *from, "A Hugging Face directory")->required();
  importer->add_option("-o,--output", *path, "The checkpoint to write; it must not exist")->required();
  importer->footer(
      "A run takes its weights by model.from = \"CHECKPOINT\" (or HF_DIR itself): its model's sizes may then be left "
      "out.\n\n"
      "Example:\n  trireme import runs/book/export -o book-checkpoint");
  importer->callback([&chosen, from, path] { chosen = [from, path] { return import_weights(*from, *path); }; });
}

}  // namespace trireme::cli
