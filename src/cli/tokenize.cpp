// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/tokenize.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cli/commands.hpp"
#include "cli/start/file_progress.hpp"
#include "cli/start/front_page.hpp"
#include "cli/start/launcher.hpp"
#include "cli/start/log.hpp"
#include "cli/start/numbers.hpp"
#include "cli/start/with_mpi.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/make_directories.hpp"
#include "trireme/base/io/output.hpp"
#include "trireme/base/log.hpp"
#include "trireme/base/seconds.hpp"
#include "trireme/data/token_file.hpp"
#include "trireme/data/tokenize_together.hpp"
#include "trireme/mpi/collective_try.hpp"
#include "trireme/mpi/topology.hpp"
#include "trireme/supervise/directory_lock.hpp"
#include "trireme/tokenizer/files.hpp"

namespace trireme::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct TokenizeArguments {
  std::string tokenizer;
  std::string output;
  std::vector<std::string> inputs;
  std::string field;
  std::string response;
  std::string chat;
  bool plain = false;
  std::int64_t skip_bad = 0;
  double validation = 0;
  int threads = 0;
};

/// A line on standard error about the progress: twice a second on a terminal, twice a minute elsewhere.
class ProgressLine {
 public:
  /// text: called when a line is due; its text behind "tokenize: ".
  template <class Text>
  void show(const Text& text) {
    if (seconds_since(shown_) < (terminal_ ? 0.5 : 30.0)) return;
    shown_ = Clock::now();
    fmt::print(stderr, "{}tokenize: {}{}", terminal_ ? "\r" : "", text(), terminal_ ? "  " : "\n");
    (void)std::fflush(stderr);
    printed_ = true;
  }

  void finish() const {
    if (printed_ && terminal_) fmt::print(stderr, "\n");
  }

 private:
  bool terminal_ = isatty(STDERR_FILENO) == 1;
  bool printed_ = false;
  Clock::time_point shown_ = Clock::now();
};

std::string documents(std::int64_t count) { return fmt::format("{} document{}", count, count == 1 ? "" : "s"); }

std::string left_out(std::int64_t count, std::string_view what) {
  return count == 0 ? "" : fmt::format("; {} {} left out", count, what);
}

void print_counts(const data::TokenizeCounts& counts, const tokenizer::Tokenizer& tokenizer, double seconds,
                  bool of_lines, bool masked) {
  const auto text_bytes = static_cast<double>(counts.text_bytes);
  const std::int64_t all_tokens = counts.tokens + counts.validation_tokens;
  fmt::print("{}: {} {} tokens of {} ({} bytes of text); model.vocab_size must be at least {}\n", counts.tokens_path,
             counts.tokens, data::to_text(counts.type), documents(counts.documents - counts.validation_documents),
             counts.text_bytes, tokenizer.vocab_size());
  if (!counts.validation_path.empty())
    fmt::print("{}: {} tokens of {} for data.validation\n", counts.validation_path, counts.validation_tokens,
               documents(counts.validation_documents));
  if (masked)
    fmt::print("{}: {} of {} tokens count in the loss\n", data::mask_path(counts.tokens_path), counts.counted_tokens,
               counts.tokens);
  fmt::print("{:.2f} bytes per token; longest document {} tokens; {} of {} ids occur{}; {:.1f} s, {:.1f} MB/s\n",
             text_bytes / static_cast<double>(std::max<std::int64_t>(all_tokens, 1)), counts.longest_document,
             counts.distinct_ids, tokenizer.vocab_size(),
             left_out(counts.empty_documents, of_lines ? "lines without text" : "empty files") +
                 left_out(counts.bad_lines, "lines that cannot be read"),
             seconds, text_bytes / 1e6 / std::max(seconds, 1e-9));
}

data::TokenizeOptions options_of(const TokenizeArguments& arguments) {
  data::TokenizeOptions options;
  options.spec = arguments.tokenizer;
  options.field = arguments.field;
  options.response = arguments.response;
  options.chat = arguments.chat;
  options.plain = arguments.plain;
  options.skip_bad = arguments.skip_bad;
  options.validation = arguments.validation;
  if (arguments.tokenizer != "bytes")
    options.tokenizer_files = io::files_of_model(tokenizer::path_of_spec(arguments.tokenizer));
  return options;
}

bool is_masked(const TokenizeArguments& arguments) { return !arguments.response.empty() || !arguments.chat.empty(); }

/// The text of a progress line of ranks that tokenize together.
std::string to_text(const data::TokenizeProgress& now) {
  const auto read = static_cast<double>(now.bytes), all = static_cast<double>(now.all_bytes);
  const double rate = read / std::max(now.seconds, 1e-9);
  return fmt::format("read_MB={:.0f}/{:.0f} MB/s={:.1f} ranks={} seconds={:.0f} seconds_left={:.0f}", read / 1e6,
                     all / 1e6, rate / 1e6, now.ranks, now.seconds, rate > 0 ? (all - read) / rate : 0);
}

/// Parts of a job under MPI, which stay when it is killed.
std::string parts_folder(const std::string& output) { return output + ".parts"; }

/// Every rank tokenizes a part of the files.
int tokenize_with_others(const mpi::Communicator& world, supervise::Watchdog& watchdog,
                         const TokenizeArguments& arguments) {
  constexpr double timeout_seconds = 600;
  const Clock::time_point begin = Clock::now();
  install_log({.rank = world.rank(), .host = mpi::hostname()}, environment("TRIREME_LOG"));
  check_launcher(launched(environment), world.size(), mpi_library());
  const auto mark = [&watchdog] { watchdog.mark("tokenizing", supervise::Watchdog::no_step); };
  mark();
  const mpi::Progress files = file_progress(timeout_seconds, mark);
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  mpi::collective_try(world, "read the tokenizer", [&] { tokenizer = tokenizer::make_tokenizer(arguments.tokenizer); });
  if (world.rank() == 0)
    for (const std::string& line : tokenizer->warnings()) log::warning(line);
  data::TokenizeOptions options = options_of(arguments);
  options.threads =
      mpi::threads_for_rank(mpi::probe_topology(world), arguments.threads, environment("OMP_NUM_THREADS"));
  std::vector<std::string> inputs;
  std::unique_ptr<supervise::DirectoryLock> lock;
  const std::string parts = parts_folder(arguments.output);
  (void)mpi::on_first_rank(
      world, "look for the text files",
      [&] {
        inputs = data::tokenize_inputs(arguments.inputs, arguments.output, options);
        if (const auto piped = std::ranges::find(inputs, "-"); piped != inputs.end())
          throw ConfigError("standard input cannot be divided among ranks: start trireme tokenize without mpirun");
        io::make_directory_of(parts + "/");
        lock = std::make_unique<supervise::DirectoryLock>(parts, "the folder of parts");
        return std::string();
      },
      files);
  ProgressLine progress;
  const data::TokenizedTogether made = data::tokenize_together(
      world, *tokenizer, inputs, arguments.output, options,
      {.parts = parts,
       .described = arguments.output,
       .progress = [&progress](const data::TokenizeProgress& now) { progress.show([&now] { return to_text(now); }); },
       .mark = mark,
       .files = files});
  if (world.rank() != 0) return 0;
  progress.finish();
  print_counts(made.counts, *tokenizer, seconds_since(begin), !arguments.field.empty(), is_masked(arguments));
  const auto [least, most] = std::ranges::minmax(made.work_bytes);
  fmt::print("{} ranks, each {:.4g} to {:.4g} MB of text (a byte of a compressed file counts as four)\n", world.size(),
             static_cast<double>(least) / 1e6, static_cast<double>(most) / 1e6);
  std::error_code ignored;
  std::filesystem::remove_all(parts, ignored);
  lock.reset();
  return 0;
}

int tokenize_alone(const TokenizeArguments& arguments) {
  const Clock::time_point begin = Clock::now();
  const auto tokenizer = tokenizer::make_tokenizer(arguments.tokenizer);
  for (const std::string& line : tokenizer->warnings()) log::warning(line);
  const auto progress = std::make_shared<ProgressLine>();
  data::TokenizeOptions options = options_of(arguments);
  options.threads =
      arguments.threads > 0 ? arguments.threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  options.progress = [progress, reading = Clock::now()](std::int64_t bytes, const data::TokenizeCounts& counts) {
    progress->show([&] {
      return fmt::format("read_MB={:.0f} documents={} seconds={:.0f}", static_cast<double>(bytes) / 1e6,
                         counts.documents, seconds_since(reading));
    });
  };
  const data::TokenizeCounts counts = data::tokenize_files(*tokenizer, arguments.inputs, arguments.output, options);
  progress->finish();
  print_counts(counts, *tokenizer, seconds_since(begin), !arguments.field.empty(), is_masked(arguments));
  return 0;
}

/// Under a launcher, and to continue from the parts of a job that was killed, by ranks of MPI.
int tokenize(const TokenizeArguments& arguments) {
  std::error_code error;
  const std::optional<Launched> by = launched(environment);
  if ((!by || by->ranks == 1) && !std::filesystem::exists(parts_folder(arguments.output), error))
    return tokenize_alone(arguments);
  require_process_manager();
  constexpr double timeout_seconds = 600;
  return with_mpi(timeout_seconds, [&](const mpi::Communicator& world, supervise::Watchdog& watchdog) {
    const int code = tokenize_with_others(world, watchdog, arguments);
    mpi::collective_try(world, "end the program", [] {});
    watchdog.rest();
    return code;
  });
}

}  // namespace

void add_tokenize(CLI::App& app, Action& chosen) {
  const auto arguments = std::make_shared<TokenizeArguments>();
  CLI::App* command = add_command(app, "tokenize");
  command
      ->add_option("--tokenizer", arguments->tokenizer,
                   "bytes, spm:PATH (a SentencePiece model) or hf:PATH (a tokenizer.json of Hugging Face): the file or "
                   "its folder")
      ->required();
  command
      ->add_option("-o,--output", arguments->output,
                   "The token file: Megatron .bin/.idx when it ends in .idx, else raw uint16 or uint32")
      ->required();
  CLI::Option* field =
      command->add_option("--field", arguments->field,
                          "The files are JSON lines, each a document: the field that holds its text; nested "
                          "ones are joined by dots (message.content)");
  CLI::Option* response =
      command
          ->add_option("--response", arguments->response,
                       "The field that holds the response to the text of --field: its tokens alone count in the loss")
          ->needs(field);
  command
      ->add_option("--chat", arguments->chat,
                   "--field holds messages ({role, content}); write them as chatml or llama3: the tokens of the "
                   "assistant's messages alone count in the loss")
      ->check(CLI::IsMember({"chatml", "llama3"}))
      ->needs(field)
      ->excludes(response);
  command
      ->add_flag("--plain", arguments->plain, "Files that are JSON are plain text, too, such as those of source code")
      ->excludes(field);
  command
      ->add_option("--skip-bad", arguments->skip_bad,
                   "Leave out up to so many lines that cannot be read (no JSON object, no such field, a message that "
                   "--chat has no place for)")
      ->check(whole_number(0, std::numeric_limits<std::int64_t>::max()))
      ->needs(field)
      ->capture_default_str();
  command
      ->add_option("--validation", arguments->validation,
                   "Share of the documents that goes to OUTPUT-validation instead, such as 0.005")
      ->check(real_number(0, 0.5));
  command->add_option("--threads", arguments->threads, "Threads that encode; 0: one per core")
      ->check(whole_number(0, 4096))
      ->capture_default_str();
  command
      ->add_option("FILE", arguments->inputs,
                   "Text files, also compressed by gzip or zstd; folders; patterns; - for standard input")
      ->required();
  command->footer(
      "Without --field each file is one document. With --response or --chat a mask (OUTPUT.mask) selects the tokens "
      "that count in the loss; training and evaluation follow it. The output appears when it is complete; data.train "
      "of a run file takes it as it is. Documents are in the order of files, whatever the number of threads.\n"
      "Under mpirun or srun the ranks share the files and write the same output: uncompressed JSON lines in pieces, "
      "other files whole. A job that was killed leaves OUTPUT.parts, from which the same command continues on any "
      "number "
      "of ranks.\n\n"
      "Examples:\n"
      "  trireme tokenize --tokenizer bytes -o runs/data/book.bin book.txt         ids 0 to 255, 256 ends a document\n"
      "  trireme tokenize --tokenizer spm:tokenizer.model -o data/web.idx web-*.txt       Megatron .bin/.idx\n"
      "  trireme tokenize --tokenizer bytes --field prompt --response response -o data/answers.bin answers.jsonl\n"
      "  mpirun -n 2 trireme tokenize --tokenizer bytes -o data/two.bin web-1.txt web-2.txt\n"
      "  zcat web.jsonl.gz | trireme tokenize --tokenizer hf:tokenizer.json --field text --validation 0.005 -o web.bin "
      "-");
  command->callback([&chosen, arguments] { chosen = [arguments] { return tokenize(*arguments); }; });
}

}  // namespace trireme::cli
