// SPDX-License-Identifier: Apache-2.0
//
// trireme generate: continues texts with a model.
#include "trireme/train/engine/generate.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "cli/inference/end_tokens.hpp"
#include "cli/inference/inference.hpp"
#include "cli/inference/streamed_text.hpp"
#include "cli/start/front_page.hpp"
#include "cli/start/libraries.hpp"
#include "cli/start/numbers.hpp"
#include "cli/start/standard_streams.hpp"
#include "cli/start/with_mpi.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/base/io/output.hpp"
#include "trireme/base/log.hpp"
#include "trireme/checkpoint/load/first_parameters.hpp"
#include "trireme/mpi/collective_try.hpp"
#include "trireme/tokenizer/files.hpp"
#include "trireme/tokenizer/tokenizer.hpp"

namespace trireme::cli {
namespace {

constexpr std::int64_t most_tokens = 1 << 30;

struct GenerateArguments {
  ModelArguments model;
  std::vector<std::string> prompts;
  std::vector<std::string> stops;
  std::int64_t tokens = 200;
  std::string logits;
  train::Sampling sampling;
  bool no_cache = false;
};

/// A run for inference, in which all ranks share each
/// layer: the sequence can be as long as the training's.
config::RunConfig forward_config(const GenerateArguments& arguments, const checkpoint::Weights& weights,
                                 std::int64_t prompt_tokens, const mpi::Communicator& world) {
  config::RunConfig config = text_config(arguments.model, world.size());
  const std::int64_t wanted = prompt_tokens + arguments.tokens;
  const std::int64_t longest = weights.generation().max_position_embeddings;
  config.data.seq_len = longest > 0 ? std::min(wanted, longest) : wanted;
  config = checkpoint::complete_model(config, world);
  const auto& scaling = config.model.rope_scaling;
  if (longest > 0 && scaling && scaling->type == config::RopeType::dynamic)  // which stretches it
    config.data.seq_len = std::min(wanted, static_cast<std::int64_t>(scaling->factor * static_cast<double>(longest)));
  return config;
}

/// Writes the logits after the prompt's last token: fp32, one for each id of the vocabulary. Collective over `world`.
void write_logits(train::Job& job, const std::vector<std::int32_t>& prompt, const std::string& path,
                  const mpi::Communicator& world) {
  const at::Tensor logits = train::TextLogits(job, false).after(prompt);
  mpi::collective_try(world, "write the logits", [&] {
    if (world.rank() != 0) return;
    const std::string bytes(static_cast<const char*>(logits.const_data_ptr()), logits.nbytes());
    io::replace_text(path, bytes);
  });
}

std::vector<std::int32_t> encode_prompt(const tokenizer::Tokenizer& tokenizer, const std::string& prompt) {
  std::vector<std::int32_t> ids = prompt_ids(tokenizer, prompt);
  if (ids.size() == tokenizer.document_begin().size())
    throw ConfigError("--prompt is empty: there is nothing to continue. Give at least one character.");
  return ids;
}

std::string read_standard_input() {
  std::string text;
  for (std::array<char, 65536> buffer{};;) {
    const ssize_t got = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (got == 0) return text;
    if (got > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
    if (got < 0 && errno != EINTR)
      throw EnvironmentError(
          fmt::format("--prompt -: standard input cannot be read: {}; check the pipe or file", std::strerror(errno)));
  }
}

/// Throws WriteError if it cannot be printed: the rest is not computed then.
void print_now(const std::string& text, bool prints) {
  if (!prints || text.empty()) return;
  fmt::print("{}", text);
  flush_standard_output();
}

void check_output_is_no_input(const GenerateArguments& arguments) {
  std::vector<std::string> inputs = io::files_of_model(arguments.model.model);
  if (!arguments.model.tokenizer.empty()) inputs.push_back(tokenizer::path_of_spec(arguments.model.tokenizer));
  io::check_output_is_no_input("generate", arguments.logits, inputs);
}

int generate(const mpi::Communicator& world, const GenerateArguments& arguments) {
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::vector<std::vector<std::int32_t>> prompts;
  std::optional<checkpoint::Weights> weights;
  std::vector<std::string> texts = arguments.prompts;
  for (std::string& text : texts)
    if (text == "-") text = mpi::on_first_rank(world, "read standard input", read_standard_input);
  std::size_t longest = 0;
  mpi::collective_try(world, "open the model", [&] {
    if (!arguments.logits.empty()) check_output_is_no_input(arguments);
    weights.emplace(open_weights(arguments.model, world.rank() == 0));
    tokenizer = open_tokenizer(arguments.model, *weights, world.rank() == 0);
    for (const std::string& text : texts)
      longest = std::max(longest, prompts.emplace_back(encode_prompt(*tokenizer, text)).size());
    if (!arguments.logits.empty() && prompts.size() > 1)
      throw ConfigError("--logits writes those of one prompt; give one --prompt");
    if (std::ranges::find(arguments.stops, "") != arguments.stops.end())
      throw ConfigError("--stop is empty, which would end every text at once; give the text to stop before");
  });
  const Libraries libraries(world, 0);
  const config::RunConfig config = forward_config(arguments, *weights, static_cast<std::int64_t>(longest), world);
  if (world.rank() == 0) {
    const std::int64_t wanted = static_cast<std::int64_t>(longest) + arguments.tokens;
    if (const std::string text = long_text_warning(arguments.model.model, wanted, config.data.seq_len); !text.empty())
      log::warning(text);
  }
  const std::set<std::int32_t> ends = end_tokens(*tokenizer, weights->generation().eos_token_ids, arguments.stops);
  weights.reset();
  const std::unique_ptr<train::Job> job = open_model(config, world);
  const bool prints = world.rank() == 0;
  if (!arguments.no_cache) require_cache_memory(*job, world);
  if (!arguments.logits.empty()) write_logits(*job, prompts.front(), arguments.logits, world);
  for (const std::vector<std::int32_t>& prompt : prompts) {
    StreamedText text(*tokenizer, prompt, arguments.stops);
    train::TextLogits model(*job, !arguments.no_cache);
    train::generate(model, prompt, arguments.tokens, tokenizer->document_end(), arguments.sampling,
                    [&](std::int32_t token) {
                      if (ends.contains(token)) return false;
                      print_now(text.add(token), prints);
                      return !text.stopped();
                    });
    print_now(text.rest() + "\n", prints);
  }
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, Action& chosen) {
  const auto a = std::make_shared<GenerateArguments>();
  CLI::App* command = add_command(app, "generate");
  add_model_options(*command, a->model, "of the prompt");
  command->add_option("--prompt", a->prompts, "The text to continue; - for standard input; may be repeated")
      ->required()
      ->allow_extra_args(false);
  command->add_option("--stop", a->stops, "Stop before this text or special token; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--tokens", a->tokens, "Maximum number of tokens to generate")
      ->check(whole_number(1, most_tokens))
      ->capture_default_str();
  CLI::Option* temperature =
      command
          ->add_option(
              "--temperature", a->sampling.temperature,
              "0: always the most likely token; 1: as the model predicts; default: 0, with --top-k or --top-p 1")
          ->check(real_number(0, 1e6));
  CLI::Option* top_k = command->add_option("--top-k", a->sampling.top_k, "Only the k most likely tokens; 0: all")
                           ->check(whole_number(0, std::numeric_limits<int>::max()))
                           ->capture_default_str();
  CLI::Option* top_p =
      command
          ->add_option("--top-p", a->sampling.top_p, "Only the most likely tokens that together have this probability")
          ->check(real_number(0, 1))
          ->capture_default_str();
  command->add_option("--logits", a->logits, "Also write the logits of the first new token to this file: fp32");
  command->add_flag("--no-cache", a->no_cache,
                    "Compute the whole text again for every token, without the key/value cache: slower, less memory");
  command->add_option("--seed", a->sampling.seed, "Random seed of the sampling")->capture_default_str();
  command->footer(
      "Stops at the tokenizer's end-of-document token or one of the model's eos_token_id, before a --stop text or "
      "token,\n"
      "or after --tokens. Under mpirun the model is tensor-parallel, for\n"
      "models that do not fit one rank.\n\n"
      "Examples:\n"
      "  trireme generate runs/quickstart/export --prompt \"In the beginning\"\n"
      "  trireme generate runs/quickstart/export --prompt \"And God said\" --temperature 0.8 --top-p 0.95 --seed 7\n"
      "  trireme generate runs/quickstart/export --prompt \"And God said\" --prompt \"In the\" --stop \".\"\n"
      "  trireme generate runs/quickstart/checkpoints/step-00000800 --prompt \"In the beginning\"\n"
      "  trireme generate Llama-2-7b-hf --tokenizer spm:Llama-2-7b-hf/tokenizer.model --prompt \"Dear\" --tokens 50");
  command->callback([&chosen, a, temperature, top_k, top_p] {
    if (temperature->count() == 0 && top_k->count() + top_p->count() > 0) a->sampling.temperature = 1;
    chosen = [a] { return with_mpi([&](const mpi::Communicator& world) { return generate(world, *a); }); };
  });
}

}  // namespace trireme::cli
