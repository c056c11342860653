// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numbers>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/commands.hpp"
#include "cli/inference/inference.hpp"
#include "cli/start/front_page.hpp"
#include "cli/start/libraries.hpp"
#include "cli/start/numbers.hpp"
#include "cli/start/with_mpi.hpp"
#include "train/choices.hpp"
#include "train/file_agreement.hpp"
#include "train/open_tokens.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/log.hpp"
#include "trireme/base/seconds.hpp"
#include "trireme/base/text.hpp"
#include "trireme/base/units.hpp"
#include "trireme/checkpoint/load/first_parameters.hpp"
#include "trireme/config/load.hpp"
#include "trireme/config/names.hpp"
#include "trireme/data/dataset.hpp"
#include "trireme/data/document_checks.hpp"
#include "trireme/data/text_bytes.hpp"
#include "trireme/data/tokenizer_check.hpp"
#include "trireme/mpi/collective_try.hpp"
#include "trireme/mpi/require_equal.hpp"
#include "trireme/tokenizer/tokenizer.hpp"
#include "trireme/train/console/terminal.hpp"
#include "trireme/train/engine/job.hpp"

namespace trireme::cli {
namespace {

constexpr std::int64_t usual_seq_len = 2048;

/// A file of questions, ready to be scored.
struct ChoiceFile {
  std::string path;
  std::vector<train::Question> questions;
  std::vector<train::Choice> choices;  ///< of all endings
};

struct EvaluateArguments {
  ModelArguments model;
  std::vector<std::string> data;
  std::vector<std::string> choices;  ///< files of questions
  std::int64_t seq_len = 0;          ///< 0: that of the model's training, at most `usual_seq_len`
  std::int64_t micro = 1;
  std::int64_t limit = 0;      ///< sequences of a token file, questions of a file of choices; 0: all
  std::string ignore_targets;  ///< ids with commas between, or "none"; empty: as the run
  std::string document_mask;   ///< "true" or "false"; empty: as the run
  std::optional<std::int64_t> document_end;
  std::string packing;  ///< a value of data.packing; empty: as the run
};

/// Prints to standard error how far an evaluation is: twice a second on a terminal, every ten seconds elsewhere.
class EvaluationProgress {
 public:
  /// prints: on one rank. what: "data=FILE". unit: of `total`, such as "sequences".
  EvaluationProgress(bool prints, std::string what, std::string_view unit, std::int64_t total)
      : prints_(prints), what_(std::move(what)), unit_(unit), total_(total) {}
  EvaluationProgress(const EvaluationProgress&) = delete;
  EvaluationProgress& operator=(const EvaluationProgress&) = delete;
  /// Ends the line on a terminal.
  ~EvaluationProgress() {
    if (printed_ && terminal_) fmt::print(stderr, "\r\033[K");
  }

  void show(std::int64_t done) {
    if (!prints_ || done == 0 || seconds_since(shown_) < (terminal_ ? 0.5 : 10.0)) return;
    shown_ = Clock::now();
    const double seconds = seconds_since(begin_);
    const double left = seconds / static_cast<double>(done) * static_cast<double>(total_ - done);
    if (terminal_)
      fmt::print(stderr, "\r\033[Kevaluate {}  {} {}/{}  {} left", what_, unit_, done, total_, duration_text(left));
    else
      fmt::print(stderr, "evaluate: {} {}={}/{} seconds={:.0f} seconds_left={:.0f}\n", what_, unit_, done, total_,
                 seconds, left);
    (void)std::fflush(stderr);
    printed_ = true;
  }

 private:
  using Clock = std::chrono::steady_clock;
  bool prints_;
  std::string what_;
  std::string_view unit_;
  std::int64_t total_;
  bool terminal_ = train::stderr_is_terminal();
  bool printed_ = false;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point shown_ = begin_;
};

/// [data] of the run that saved MODEL; nothing for other weights.
std::optional<config::Data> data_of_run(const checkpoint::Weights& weights, const std::string& model, bool warns) {
  if (weights.run_file().empty()) return std::nullopt;
  try {
    return config::parse_run_file(weights.run_file(), "the run file of the checkpoint").data;
  } catch (const ConfigError& error) {
    if (warns)
      log::warning(fmt::format(
          "{}: its run file is of another version ({}), so data.ignore_targets, data.document_mask, "
          "data.document_end and data.packing are not taken from it; give --ignore-targets, --document-mask, "
          "--document-end and --packing",
          model, error.what()));
    return std::nullopt;
  }
}

std::vector<std::int64_t> ids_of(const std::string& text) {
  std::vector<std::int64_t> ids;
  if (text == "none") return ids;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view word = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
    std::int64_t id = -1;
    const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (problem != std::errc{} || end != word.data() + word.size() || id < 0)
      throw ConfigError(fmt::format(
          "--ignore-targets {}: expected token ids with commas between, such as 0,32, or none", printable(text)));
    ids.push_back(id);
  }
  return ids;
}

/// Selects the counted targets and the document mask:
/// by default as in the run of MODEL's checkpoint.
void choose_targets(config::Data& data, const EvaluateArguments& arguments, const checkpoint::Weights& weights,
                    const tokenizer::Tokenizer* tokenizer, bool warns) {
  if (const auto run = data_of_run(weights, arguments.model.model, warns)) {
    data.ignore_targets = run->ignore_targets;
    data.document_mask = run->document_mask;
    data.document_end = run->document_end;
    data.packing = run->packing;
    data.check_tokenizer = run->check_tokenizer || !arguments.model.tokenizer.empty();
  }
  if (!arguments.ignore_targets.empty()) data.ignore_targets = ids_of(arguments.ignore_targets);
  if (!arguments.packing.empty()) {
    const bool packs = arguments.packing == config::to_text(config::Packing::best_fit);
    // A mask that came with the packing of the run goes with it.
    if (!packs && data.packing == config::Packing::best_fit) data.document_mask = false;
    data.packing = packs ? config::Packing::best_fit : config::Packing::concatenate;
  }
  if (data.packing == config::Packing::best_fit) {
    if (arguments.document_mask == "false")
      throw ConfigError(
          "--document-mask false: packed documents do not see each other; leave it out, or give --packing concatenate");
    data.document_mask = true;
  }
  if (!arguments.document_mask.empty()) data.document_mask = arguments.document_mask == "true";
  if (arguments.document_end) data.document_end = arguments.document_end;
  if (data.document_mask && !data.document_end && tokenizer != nullptr) data.document_end = tokenizer->document_end();
}

/// A run that only looks at the model, whose ranks each take their part of the sequences.
config::RunConfig evaluation_config(const EvaluateArguments& arguments, const checkpoint::Weights& weights,
                                    const tokenizer::Tokenizer* tokenizer, int ranks, bool warns) {
  config::RunConfig config = inference_config(arguments.model);
  config.batch = {.global = arguments.micro * ranks, .micro = arguments.micro};
  config.mesh = {.replicate = 1, .shard = ranks, .tensor = 1};
  const std::int64_t longest = weights.generation().max_position_embeddings;
  config.data.seq_len = arguments.seq_len > 0 ? arguments.seq_len
                        : longest > 0         ? std::min(longest, usual_seq_len)
                                              : usual_seq_len;
  choose_targets(config.data, arguments, weights, tokenizer, warns);
  return config;
}

/// Opens a token file of --data, before any is computed on. spec: of `tokenizer`, null if none is known.
void check_tokens(const std::string& path, const config::Data& data, std::int64_t vocab_size,
                  const tokenizer::Tokenizer* tokenizer, const std::string& spec, bool warns) {
  const auto datasets = data::open_datasets({config::TokenSource{.path = path}}, false, data.format, data.seq_len,
                                            vocab_size, {}, data::FileTail::padded);
  if (tokenizer != nullptr && data.check_tokenizer) {
    data::require_tokenizer(
        datasets, *tokenizer, "the model's is " + spec,
        "tokenize the text with the model's, or give the file's with --tokenizer if the model was trained with it");
    if (warns) data::warn_of_other_ids(datasets, spec, *tokenizer);
  }
  if (data.packing == config::Packing::best_fit && !datasets.front().files().front().has_document_ends())
    throw ConfigError(fmt::format(
        "data.packing = \"best_fit\" of the model's run: where the documents of {} end is not known, since it "
        "has neither a sidecar ({}) nor a Megatron index; tokenize again with trireme tokenize, or give "
        "--packing concatenate",
        path, data::sidecar_path(path)));
  if (!data.document_mask) return;
  if (!data.document_end && !datasets.front().files().front().has_document_ends())
    throw ConfigError(
        fmt::format("--document-mask true: where the documents of {} end is not known, since it has neither a sidecar "
                    "({}) nor a Megatron index; give the id of the token that ends a document with --document-end",
                    path, data::sidecar_path(path)));
  if (warns) data::warn_of_document_ends(datasets, data.document_end);
}

/// Compares files that ranks read by path, each on its own node, before a rank waits for targets that another lacks.
void agree_on_files(const mpi::Communicator& world, const EvaluateArguments& arguments, config::RunConfig config,
                    const std::vector<ChoiceFile>& choices) {
  mpi::require_equal(world, "the settings of the evaluation", config::print_run_file(config));
  const double timeout = config.comm.timeout_seconds;
  for (const std::string& path : arguments.data) config.data.train.push_back({.path = path});
  const std::string inputs = mpi::on_first_rank(world, "list the files that ranks read", [&] {
    auto paths = train::input_paths(config);
    for (const ChoiceFile& file : choices)
      paths.push_back({.kind = train::InputPath::Kind::questions, .path = file.path});
    return train::encode(paths);
  });
  train::agree_on_input_files(world, train::decode_inputs(inputs), timeout, [] {});
  for (const ChoiceFile& file : choices) {  // of tokenizers that differ
    std::string ids;
    for (const train::Choice& choice : file.choices)
      ids += fmt::format("{} {}\n", choice.context, fmt::join(choice.ids, " "));
    mpi::require_equal(world, "the tokens of " + file.path, ids);
  }
}

/// Settings other than the files that affect the loss, if set.
std::string settings_of(const config::Data& data) {
  std::string text;
  if (!data.ignore_targets.empty()) text += fmt::format(" ignore_targets={}", fmt::join(data.ignore_targets, ","));
  if (data.document_mask) text += " document_mask=true";
  if (data.packing != config::Packing::concatenate) text += fmt::format(" packing={}", config::to_text(data.packing));
  if (data.document_mask && data.document_end) text += fmt::format(" document_end={}", *data.document_end);
  return text;
}

/// Evaluates the targets of `path`, those of the tail included, as training counts them. Throws DataError if none
/// counts and NumericsError where their loss is not finite, on every rank.
std::string line_of(train::Job& job, const mpi::Communicator& world, const std::string& path, std::int64_t limit,
                    const tokenizer::Tokenizer* tokenizer) {
  config::Data data = job.config().data;
  data.validation = {config::TokenSource{.path = path}};
  data::BatchShape shape = job.batch_shape();
  if (limit > 0) shape.end = limit;
  data::BatchReader reader(train::open_tokens(world, data, data::Split::validation, job.config().model.vocab_size),
                           data, data::Split::validation, 0, shape);
  const std::int64_t sequences = std::min(reader.samples(), shape.end);
  train::Job::Evaluation result;
  {
    EvaluationProgress progress(world.rank() == 0, "data=" + path, "sequences", sequences);
    std::int64_t begun = 0;
    const auto next = [&] {
      progress.show(begun);
      begun += shape.global();
      return std::optional(reader.next());
    };
    result = job.evaluate(next, (sequences + shape.global() - 1) / shape.global());
  }
  mpi::collective_try(world, "check the loss", [&] {
    if (result.targets == 0)
      throw DataError(
          fmt::format("{}: none of its targets counts{}, and a mean over none is no number; evaluate a file with "
                      "responses, or give --ignore-targets none",
                      path, settings_of(data).empty() ? " by its .mask file" : " with" + settings_of(data)));
    if (!std::isfinite(result.loss))
      throw NumericsError(fmt::format(
          "{}: the loss is {}, not a finite number: weights of {} are not finite, or overflow in fp32; evaluate an "
          "earlier checkpoint",
          path, result.loss, job.config().model.from));
  });
  std::string line = fmt::format("data={} loss={:.6f} perplexity={:.6g}", path, result.loss, std::exp(result.loss));
  const data::TokenFile file(path, data.format, job.config().model.vocab_size);
  const bool packed = data.packing == config::Packing::best_fit;   // the first token of a document is no target
  if (!file.masked() && !packed && data.ignore_targets.empty()) {  // else parts of the text count
    const std::int64_t end = std::min(file.tokens(), sequences * data.seq_len + 1);
    const bool of_text = file.sidecar() && end == file.tokens();
    const std::int64_t bytes = of_text                ? file.sidecar()->text_bytes
                               : tokenizer != nullptr ? data::decoded_bytes(file, end, *tokenizer)
                                                      : 0;
    if (bytes > 0)
      line += fmt::format(" bits_per_byte={:.6f} bytes={} bytes_of={}",
                          result.loss * result.targets / std::numbers::ln2 / static_cast<double>(bytes), bytes,
                          of_text ? "text" : "decoded_tokens");
  }
  if (limit > 0 && sequences < reader.samples()) line += fmt::format(" sequences={}/{}", sequences, reader.samples());
  return line + fmt::format("{} targets={:.0f} seq_len={}\n", settings_of(data), result.targets, data.seq_len);
}

std::string line_of(train::Job& job, const mpi::Communicator& world, const ChoiceFile& file) {
  EvaluationProgress progress(world.rank() == 0, "choices=" + file.path, "endings",
                              static_cast<std::int64_t>(file.choices.size()));
  std::string line;
  std::optional<NumericsError> failure;
  try {
    const auto log_likelihoods = train::score_choices(job, file.choices, file.path, [&](std::size_t done) {
      progress.show(static_cast<std::int64_t>(done));
      return true;
    });
    const train::ChoiceScores scores = train::scores_of(file.questions, *log_likelihoods);
    line = fmt::format(
        "choices={} accuracy={:.6f} accuracy_stderr={:.6f} accuracy_norm={:.6f} accuracy_norm_stderr={:.6f} "
        "questions={}\n",
        file.path, scores.accuracy, scores.standard_error(scores.accuracy), scores.accuracy_norm,
        scores.standard_error(scores.accuracy_norm), scores.questions);
  } catch (const NumericsError& error) {  // of a sum over all ranks: every rank has it
    failure = error;
  }
  mpi::collective_try(world, "check the scores", [&] {
    if (failure) throw NumericsError(*failure);
  });
  return line;
}

int evaluate(const mpi::Communicator& world, const EvaluateArguments& arguments) {
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::vector<ChoiceFile> choices;
  config::RunConfig config;
  mpi::collective_try(world, "open the model and the data", [&] {
    const bool warns = world.rank() == 0;
    const checkpoint::Weights weights = open_weights(arguments.model, warns);
    if (!arguments.choices.empty() || knows_tokenizer(arguments.model, weights))
      tokenizer = open_tokenizer(arguments.model, weights, warns);
    config = evaluation_config(arguments, weights, tokenizer.get(), world.size(), warns);
    const std::string& given = arguments.model.tokenizer;
    for (const std::string& path : arguments.data)
      check_tokens(path, config.data, weights.model().vocab_size, tokenizer.get(),
                   given.empty() ? weights.generation().tokenizer : given, warns);
    for (const std::string& path : arguments.choices) {
      ChoiceFile file{.path = path, .questions = train::first_questions(path, arguments.limit), .choices = {}};
      file.choices = train::choices_of(*tokenizer, file.questions, static_cast<std::size_t>(config.data.seq_len), path);
      choices.push_back(std::move(file));
    }
  });
  agree_on_files(world, arguments, config, choices);
  const Libraries libraries(world, 0);
  const std::unique_ptr<train::Job> job = open_model(checkpoint::complete_model(config, world), world);
  const auto print = [&](const std::string& line) {
    if (world.rank() != 0) return;
    fmt::print("{}", printable_lines(line));
    (void)std::fflush(stdout);
  };
  for (const std::string& path : arguments.data)
    print(line_of(*job, world, path, arguments.limit, world.rank() == 0 ? tokenizer.get() : nullptr));
  for (const ChoiceFile& file : choices) print(line_of(*job, world, file));
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
  command
      ->add_option("--limit", a->limit,
                   "At most N sequences of each token file and N questions of each file of choices")
      ->type_name("N")
      ->check(whole_number(1, std::int64_t{1} << 40));
  command->add_option(
      "--ignore-targets", a->ignore_targets,
      "Token ids whose targets do not count, such as 0,32, or none; default: as the run of a checkpoint");
  command
      ->add_option("--document-mask", a->document_mask,
                   "Whether attention is masked across documents; default: as the run of a checkpoint")
      ->check(CLI::IsMember({"true", "false"}));
  command
      ->add_option("--document-end", a->document_end,
                   "The token id that ends a document; default: as the run of a checkpoint")
      ->check(whole_number(0, 0x7fffffff));
  command
      ->add_option("--packing", a->packing,
                   "How documents fill sequences (data.packing); default: as the run of a "
                   "checkpoint, else concatenate")
      ->check(CLI::IsMember({"concatenate", "best_fit"}));
  command->footer(
      "In fp32, over every target of a file once, as train.eval_every counts them: of a checkpoint with\n"
      "data.ignore_targets, data.document_mask, data.document_end and data.packing of its run; an export does not have "
      "them.\n"
      "The .mask file of a token file is followed. A file whose sidecar has another tokenizer is refused.\n"
      "Bits per byte are printed where all of the text counts: of the bytes of text in the sidecar (bytes_of=text), "
      "else of the decoded tokens, which a tokenizer that normalizes text makes fewer or more.\n"
      "Under mpirun the parameters are sharded over the ranks, which share the sequences.\n"
      "Choices are scored as by lm-evaluation-harness: the ending with the highest log-likelihood after the context "
      "and a blank (accuracy), and the one with the highest per character (accuracy_norm).\n\n"
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
