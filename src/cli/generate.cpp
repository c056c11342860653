// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/engine/generate.hpp"

#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "cli/numbers.hpp"
#include "cli/start/libraries.hpp"
#include "cli/start/with_mpi.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/checkpoint/load/first_parameters.hpp"
#include "trireme/checkpoint/load/weights.hpp"
#include "trireme/config/names.hpp"
#include "trireme/mpi/together.hpp"
#include "trireme/tokenizer/tokenizer.hpp"
#include "trireme/train/setup/compute_device.hpp"

namespace trireme::cli {
namespace {

constexpr std::int64_t most_tokens = 1 << 30;

struct GenerateArguments {
  std::string model;
  std::string prompt;
  std::string tokenizer;  ///< empty: the model's
  std::int64_t tokens = 200;
  std::string logits;
  std::string device = "auto";
  train::Sampling sampling;
};

/// A run that only looks at the model, whose ranks share each layer: the sequence may be as long as what it was trained
/// on.
config::RunConfig forward_config(const GenerateArguments& arguments, const checkpoint::Weights& weights,
                                 std::int64_t prompt_tokens, const mpi::Communicator& world) {
  config::RunConfig config;
  config.model.from = arguments.model;
  config.precision.compute = DType::fp32;
  config.batch = {.global = 1, .micro = 1};
  for (const auto& [type, name] : config::names_of(config::DeviceType{}))
    if (arguments.device == name) config.device.type = type;
  config.mesh = {.replicate = 1, .shard = 1, .tensor = world.size()};
  if (world.size() > 1) config.mesh.sequence_parallel = false;  // a text grows by one token
  const std::int64_t wanted = prompt_tokens + arguments.tokens;
  const std::int64_t longest = weights.generation().max_position_embeddings;
  config.data.seq_len = longest > 0 ? std::min(wanted, longest) : wanted;
  return checkpoint::complete_model(config, world);
}

/// Where --device says, or where a GPU is.
train::ComputeDevice chosen_device(const config::RunConfig& config, const mpi::Communicator& world) {
  try {
    return train::choose_device(config, world);
  } catch (const EnvironmentError& error) {  // it names the run file's key
    throw EnvironmentError(fmt::format("{} (device.type is set with --device)", error.what()));
  }
}

/// Writes the logits after the prompt's last token: fp32, one for each id of the vocabulary. All ranks know them.
void write_logits(train::Job& job, const std::vector<std::int32_t>& prompt, const std::string& path, bool writes) {
  const std::size_t length = std::min(prompt.size(), static_cast<std::size_t>(job.config().data.seq_len));
  const at::Tensor tokens =
      at::tensor(std::vector<std::int32_t>(prompt.end() - static_cast<std::ptrdiff_t>(length), prompt.end()));
  const at::Tensor logits = job.infer(tokens.reshape({1, static_cast<std::int64_t>(length)}));
  if (!writes) return;
  const std::string bytes(static_cast<const char*>(logits.const_data_ptr()), logits.nbytes());
  const auto kind = std::filesystem::symlink_status(path).type();
  const bool replaces = kind == std::filesystem::file_type::regular || kind == std::filesystem::file_type::not_found;
  replaces ? io::replace_text(path, bytes) : io::write_text(path, bytes);  // a pipe or a device stays what it is
}

/// What can be judged without MPI; returns the prompt's tokens, behind those that begin every document.
std::vector<std::int32_t> encode_prompt(const GenerateArguments& arguments, const std::string& spec,
                                        const tokenizer::Tokenizer& tokenizer, const config::Model& model) {
  if (tokenizer.vocab_size() > model.vocab_size)
    throw ConfigError(fmt::format(
        "tokenizer {} has {} ids, but {} was trained with a vocabulary of {}. Give the tokenizer that made its "
        "training data by --tokenizer.",
        spec, tokenizer.vocab_size(), arguments.model, model.vocab_size));
  const std::vector<std::int32_t> text = tokenizer.encode(arguments.prompt);
  if (text.empty()) throw ConfigError("--prompt is empty: there is nothing to continue. Give at least one character.");
  std::vector<std::int32_t> prompt = tokenizer.document_begin();
  prompt.insert(prompt.end(), text.begin(), text.end());
  return prompt;
}

int generate(const mpi::Communicator& world, const GenerateArguments& arguments) {
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::vector<std::int32_t> prompt;
  std::optional<checkpoint::Weights> weights;
  mpi::together(world, [&] {
    weights.emplace(checkpoint::Weights::open(arguments.model));
    if (world.rank() == 0) weights->warn_of_unread_keys();
    const std::string spec = arguments.tokenizer.empty() ? weights->tokenizer() : arguments.tokenizer;
    tokenizer = tokenizer::make_tokenizer(spec);
    prompt = encode_prompt(arguments, spec, *tokenizer, weights->model());
  });
  const Libraries libraries(world, 0);
  const config::RunConfig config = forward_config(arguments, *weights, static_cast<std::int64_t>(prompt.size()), world);
  weights.reset();
  const train::ComputeDevice on = chosen_device(config, world);
  train::Job job(config, world, {.device = on.device, .link = on.link, .trains = false});
  checkpoint::check_weights(job.config(), job.model());
  job.store().fill(checkpoint::first_parameters(job.config()));
  if (!arguments.logits.empty()) write_logits(job, prompt, arguments.logits, world.rank() == 0);
  std::vector<std::int32_t> text = prompt;
  std::string shown;
  train::generate(job, prompt, arguments.tokens, tokenizer->document_end(), arguments.sampling,
                  [&](std::int32_t token) {
                    text.push_back(token);
                    if (world.rank() != 0) return;
                    const std::string now = tokenizer->decode(text);
                    fmt::print("{}", std::string_view(now).substr(std::min(shown.size(), now.size())));
                    std::fflush(stdout);
                    shown = now;
                  });
  if (world.rank() == 0) fmt::print("\n");
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, Action& chosen) {
  const auto a = std::make_shared<GenerateArguments>();
  CLI::App* command = app.add_subcommand("generate", "Continue a text with a model.");
  command->add_option("MODEL", a->model, "A checkpoint, or a Hugging Face directory such as the export of a run")
      ->required();
  command->add_option("--prompt", a->prompt, "The text to continue")->required();
  command->add_option("--tokenizer", a->tokenizer,
                      "bytes, spm:MODEL or hf:FILE; default: the tokenizer that MODEL was trained with");
  command->add_option("--tokens", a->tokens, "Maximum number of tokens to generate")
      ->check(whole_number(1, most_tokens))
      ->capture_default_str();
  command->add_option("--temperature", a->sampling.temperature, "0: always the most likely token; 1: as the model says")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  command->add_option("--top-k", a->sampling.top_k, "Only the k most likely tokens; 0: all")
      ->check(whole_number(0, std::numeric_limits<int>::max()))
      ->capture_default_str();
  command->add_option("--top-p", a->sampling.top_p, "Only the most likely tokens that together have this probability")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->add_option("--logits", a->logits, "Also write the logits of the first new token to this file: fp32");
  command->add_option("--device", a->device, "Device: auto (GPU if every rank has one), cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  command->add_option("--seed", a->sampling.seed, "Of the sampling")->capture_default_str();
  command->footer(
      "Stops at the tokenizer's end-of-document token or after --tokens. Under mpirun the model is tensor-parallel, "
      "for\n"
      "models that do not fit one rank.\n\n"
      "Examples:\n"
      "  trireme generate runs/quickstart/export --prompt \"In the beginning\"\n"
      "  trireme generate runs/quickstart/export --prompt \"And God said\" --temperature 0.8 --top-p 0.95 --seed 7\n"
      "  trireme generate runs/quickstart/checkpoints/step-00000800 --prompt \"In the beginning\"\n"
      "  trireme generate Llama-2-7b-hf --tokenizer spm:Llama-2-7b-hf/tokenizer.model --prompt \"Dear\" --tokens 50");
  command->callback([&chosen, a] {
    chosen = [a] { return with_mpi([&](const mpi::Communicator& world) { return generate(world, *a); }); };
  });
}

}  // namespace trireme::cli
