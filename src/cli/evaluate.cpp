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
#include "cli/inference/choices.hpp"
#include "cli/inference/inference.hpp"
#include "cli/start/front_page.hpp"
#include "cli/start/libraries.hpp"
#include "cli/start/numbers.hpp"
#include "cli/start/with_mpi.hpp"
#include "trireme/base/error.hpp"
#include "trireme/checkpoint/load/first_parameters.hpp"
#include "trireme/data/dataset.hpp"
#include "trireme/mpi/together.hpp"
#include "trireme/tokenizer/tokenizer.hpp"
#include "trireme/train/engine/job.hpp"

namespace trireme::cli {
namespace {

constexpr std::int64_t usual_seq_len = 2048;

struct EvaluateArguments {
  ModelArguments model;
  std::vector<std::string> data;
  std::vector<std::string> choices;  ///< files of questions
  std::int64_t seq_len = 0;          ///< 0: what the model was trained on, at most `usual_seq_len`
  std::int64_t micro = 1;
};

/// A run that only looks at the model, whose ranks each take their part of the sequences.
config::RunConfig evaluation_config(const EvaluateArguments& arguments, const checkpoint::Weights& weights, int ranks) {
  config::RunConfig config = inference_config(arguments.model);
  config.batch = {.global = arguments.micro * ranks, .micro = arguments.micro};
  config.mesh = {.replicate = 1, .shard = ranks, .tensor = 1};
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
  const data::TokenFile file(path, data.format, job.config().model.vocab_size);
  if (tokenizer != nullptr && !file.masked()) {  // the text of targets here and there is unknown
    const auto bytes = static_cast<double>(text_bytes(file, data.seq_len, *tokenizer));
    line += fmt::format(" bits_per_byte={:.6f}", result.loss * result.targets / std::numbers::ln2 / bytes);
  }
  return line + fmt::format(" targets={:.0f} seq_len={}\n", result.targets, data.seq_len);
}

int evaluate(const mpi::Communicator& world, const EvaluateArguments& arguments) {
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::vector<std::vector<Question>> questions;
  config::RunConfig config;
  mpi::together(world, [&] {
    const checkpoint::Weights weights = open_weights(arguments.model, world.rank() == 0);
    if (!arguments.choices.empty() || knows_tokenizer(arguments.model, weights))
      tokenizer = open_tokenizer(arguments.model, weights, world.rank() == 0);
    config = evaluation_config(arguments, weights, world.size());
    for (const std::string& path : arguments.data)  // before any is computed on
      (void)data::open_datasets({config::TokenSource{.path = path}}, false, config.data.format, config.data.seq_len,
                                weights.model().vocab_size);
    for (const std::string& path : arguments.choices) questions.push_back(read_questions(path));
  });
  const Libraries libraries(world, 0);
  const std::unique_ptr<train::Job> job = open_model(checkpoint::complete_model(config, world), world);
  for (const std::string& path : arguments.data) {
    const std::string line = line_of(*job, path, world.rank() == 0 ? tokenizer.get() : nullptr);
    if (world.rank() == 0) fmt::print("{}", line);
  }
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const std::string line = evaluate_choices(*job, arguments.choices[i], questions[i], *tokenizer);
    if (world.rank() == 0) fmt::print("{}", line);
  }
  return 0;
}

}  // namespace

void add_evaluate(CLI::App& app, Action& chosen) {
  const auto a = std::make_shared<EvaluateArguments>();
  CLI::App* command = add_command(app, "evaluate");
  add_model_options(*command, a->model, "for bits per byte and choices");
  command->add_option("--data", a->data, "Token files; each is evaluated separately");
  command->add_option("--choices", a->choices,
                      "Multiple choice: files of JSON lines with \"context\", \"endings\" and \"label\"");
  command->add_option("--seq-len", a->seq_len, "Tokens of a sequence; default: as in training, at most 2048")
      ->check(whole_number(1, 1 << 24));
  command->add_option("--micro", a->micro, "Sequences at once on each rank")
      ->check(whole_number(1, 1 << 20))
      ->capture_default_str();
  command->footer(
      "In fp32, over every target of a file once, as train.eval_every counts them;\na mask beside the file is followed "
      "(then without bits per byte). "
      "Under mpirun the parameters are\n"
      "sharded over the ranks, which share the sequences.\n"
      "Choices are scored as by lm-evaluation-harness: the ending with the highest log-likelihood after the context "
      "and\n"
      "a blank (accuracy), and the one with the highest per character (accuracy_norm).\n\n"
      "Examples:\n"
      "  trireme evaluate runs/quickstart/export --data data/book.bin\n"
      "  mpirun -n 4 trireme evaluate runs/quickstart/export --data data/book.bin --seq-len 128 --micro 4\n"
      "  trireme evaluate runs/quickstart/export --choices questions.jsonl");
  command->callback([&chosen, a] {
    if (a->data.empty() && a->choices.empty()) throw CLI::RequiredError("evaluate: --data or --choices");
    chosen = [a] { return with_mpi([&](const mpi::Communicator& world) { return evaluate(world, *a); }); };
  });
}

}  // namespace trireme::cli
