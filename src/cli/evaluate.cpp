// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "cli/numbers.hpp"
#include "cli/start/libraries.hpp"
#include "cli/start/with_mpi.hpp"
#include "trireme/base/error.hpp"
#include "trireme/checkpoint/load/first_parameters.hpp"
#include "trireme/checkpoint/load/weights.hpp"
#include "trireme/config/names.hpp"
#include "trireme/data/dataset.hpp"
#include "trireme/mpi/together.hpp"
#include "trireme/tokenizer/tokenizer.hpp"
#include "trireme/train/engine/job.hpp"
#include "trireme/train/setup/compute_device.hpp"

namespace trireme::cli {
namespace {

constexpr std::int64_t usual_seq_len = 2048;

struct EvaluateArguments {
  std::string model;
  std::vector<std::string> data;
  std::string tokenizer;     ///< empty: the model's, if it is known
  std::int64_t seq_len = 0;  ///< 0: what the model was trained on, at most `usual_seq_len`
  std::int64_t micro = 1;
  std::string device = "auto";
};

/// A run that only looks at the model, whose ranks each take their part of the sequences.
config::RunConfig evaluation_config(const EvaluateArguments& arguments, const checkpoint::Weights& weights, int ranks) {
  config::RunConfig config;
  config.model.from = arguments.model;
  config.precision.compute = DType::fp32;
  config.batch = {.global = arguments.micro * ranks, .micro = arguments.micro};
  config.mesh = {.replicate = 1, .shard = ranks, .tensor = 1};
  for (const auto& [type, name] : config::names_of(config::DeviceType{}))
    if (arguments.device == name) config.device.type = type;
  const std::int64_t longest = weights.generation().max_position_embeddings;
  config.data.seq_len = arguments.seq_len > 0 ? arguments.seq_len
                        : longest > 0         ? std::min(longest, usual_seq_len)
                                              : usual_seq_len;
  return config;
}

/// Bytes of text that the targets of a file stand for; ends of documents have none.
std::int64_t text_bytes(const data::TokenFile& file, std::int64_t seq_len, const tokenizer::Tokenizer& tokenizer) {
  constexpr std::int64_t at_once = 1 << 20;
  const std::int64_t end = (file.tokens() - 1) / seq_len * seq_len + 1;
  std::vector<std::int32_t> tokens, document;
  std::int64_t bytes = 0;
  const auto count = [&] {
    bytes += static_cast<std::int64_t>(tokenizer.decode(document).size());
    document.clear();
  };
  for (std::int64_t at = 1; at < end; at += at_once) {
    tokens.resize(static_cast<std::size_t>(std::min(at_once, end - at)));
    file.read(at, tokens);
    for (const std::int32_t token : tokens)
      if (token == tokenizer.document_end())
        count();
      else
        document.push_back(token);
  }
  count();
  return bytes;
}

/// The loss over every target of `path`, as training counts it.
std::string line_of(train::Job& job, const std::string& path, const tokenizer::Tokenizer* tokenizer) {
  config::Data data = job.config().data;
  data.validation = {config::TokenSource{.path = path}};
  const data::BatchShape shape = job.batch_shape();
  data::BatchReader reader(data, data::Split::validation, job.config().model.vocab_size, 0, shape);
  const train::Job::Evaluation result = job.evaluate(reader, (reader.samples() + shape.global() - 1) / shape.global());
  std::string line = fmt::format("data={} loss={:.6f} perplexity={:.6g}", path, result.loss, std::exp(result.loss));
  if (tokenizer != nullptr) {
    const data::TokenFile file(path, data.format, job.config().model.vocab_size);
    const auto bytes = static_cast<double>(text_bytes(file, data.seq_len, *tokenizer));
    line += fmt::format(" bits_per_byte={:.6f}", result.loss * result.targets / std::numbers::ln2 / bytes);
  }
  return line + fmt::format(" targets={:.0f} seq_len={}\n", result.targets, data.seq_len);
}

int evaluate(const mpi::Communicator& world, const EvaluateArguments& arguments) {
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  config::RunConfig config;
  mpi::together(world, [&] {
    const checkpoint::Weights weights = checkpoint::Weights::open(arguments.model);
    if (world.rank() == 0) weights.warn_of_unread_keys();
    const bool known = !arguments.tokenizer.empty() || !weights.generation().tokenizer.empty();
    const std::string spec = !known ? "" : arguments.tokenizer.empty() ? weights.tokenizer() : arguments.tokenizer;
    if (known) tokenizer = tokenizer::make_tokenizer(spec);
    config = evaluation_config(arguments, weights, world.size());
    for (const std::string& path : arguments.data)  // before any is computed on
      (void)data::open_datasets({config::TokenSource{.path = path}}, false, config.data.format, config.data.seq_len,
                                weights.model().vocab_size);
  });
  const Libraries libraries(world, 0);
  config = checkpoint::complete_model(config, world);
  const train::ComputeDevice on = train::choose_device(config, world);
  train::Job job(config, world, {.device = on.device, .link = on.link, .trains = false});
  if (world.rank() == 0) checkpoint::check_weights(job.config(), job.model());
  job.store().fill(checkpoint::first_parameters(job.config(), world));
  for (const std::string& path : arguments.data) {
    const std::string line = line_of(job, path, world.rank() == 0 ? tokenizer.get() : nullptr);
    if (world.rank() == 0) fmt::print("{}", line);
  }
  return 0;
}

}  // namespace

void add_evaluate(CLI::App& app, Action& chosen) {
  const auto a = std::make_shared<EvaluateArguments>();
  CLI::App* command = app.add_subcommand("evaluate", "Loss, perplexity and bits per byte of a model on token files.");
  command->add_option("MODEL", a->model, "A checkpoint, or a Hugging Face directory")->required();
  command->add_option("--data", a->data, "Token files, each of which is evaluated for itself")->required();
  command->add_option("--seq-len", a->seq_len, "Tokens of a sequence; default: as in training, at most 2048")
      ->check(whole_number(1, 1 << 24));
  command->add_option("--micro", a->micro, "Sequences at once on each rank")
      ->check(whole_number(1, 1 << 20))
      ->capture_default_str();
  command->add_option(
      "--tokenizer", a->tokenizer,
      "bytes, spm:MODEL or hf:FILE, for bits per byte; default: the tokenizer that MODEL was trained with");
  command->add_option("--device", a->device, "Device: auto (GPU if every rank has one), cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  command->footer(
      "In fp32, over every target of a file once, as train.eval_every counts them. Under mpirun the parameters are\n"
      "sharded over the ranks, which share the sequences.\n\n"
      "Examples:\n"
      "  trireme evaluate runs/quickstart/export --data data/book.bin\n"
      "  mpirun -n 4 trireme evaluate runs/quickstart/export --data data/book.bin --seq-len 128 --micro 4");
  command->callback([&chosen, a] {
    chosen = [a] { return with_mpi([&](const mpi::Communicator& world) { return evaluate(world, *a); }); };
  });
}

}  // namespace trireme::cli
