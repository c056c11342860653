// SPDX-License-Identifier: Apache-2.0
//
// trireme data: the sources of a run, and its samples as the model sees them.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.hpp"
#include "cli/run_file.hpp"
#include "cli/run_tokens.hpp"
#include "cli/start/file_progress.hpp"
#include "cli/start/front_page.hpp"
#include "cli/start/launcher.hpp"
#include "cli/start/log.hpp"
#include "cli/start/numbers.hpp"
#include "cli/start/train_arguments.hpp"
#include "cli/start/with_mpi.hpp"
#include "data/token_parts.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/input_file.hpp"
#include "trireme/base/text.hpp"
#include "trireme/base/text_table.hpp"
#include "trireme/checkpoint/load/first_parameters.hpp"
#include "trireme/config/overrides.hpp"
#include "trireme/config/validation_sets.hpp"
#include "trireme/data/batch_reader.hpp"
#include "trireme/data/text/xxh3.hpp"
#include "trireme/mpi/collective_try.hpp"
#include "trireme/mpi/topology.hpp"
#include "trireme/tokenizer/tokenizer.hpp"

namespace trireme::cli {
namespace {

struct DataArguments {
  RunFileArguments run_file;
  std::int64_t samples = 0;
  std::int64_t first = 0;
  bool duplicates = false;
  bool verify = false;
};

/// Documents by the hash of their tokens, over all sources in order.
class Duplicates {
 public:
  /// Documents of `file` whose tokens another document had before, in it or an earlier file; absent if its ends are in
  /// no sidecar.
  [[nodiscard]] std::optional<std::int64_t> count(const data::TokenFile& file) {
    if (!file.sidecar()) return std::nullopt;
    const io::InputFile ends(data::ends_path(file.path()), "document ends");
    constexpr std::int64_t bytes_of_end = 16, at_once = 4096;
    std::vector<std::int64_t> chunk;
    std::vector<std::int32_t> tokens;
    std::vector<std::uint64_t> hashes;
    std::int64_t begin = 0;
    for (std::int64_t document = 0; document < file.sidecar()->documents; ++document) {
      if (document % at_once == 0) {
        chunk.resize(static_cast<std::size_t>(2 * std::min(at_once, file.sidecar()->documents - document)));
        ends.read_at(document * bytes_of_end, std::as_writable_bytes(std::span(chunk)));
      }
      const std::int64_t end = chunk[static_cast<std::size_t>(2 * (document % at_once))];
      tokens.resize(static_cast<std::size_t>(end - begin));
      file.read(begin, tokens);
      hashes.push_back(data::xxh3(std::as_bytes(std::span(tokens))));
      begin = end;
    }
    std::ranges::sort(hashes);
    std::vector<std::uint64_t> unique = hashes;
    const auto [last, rest] = std::ranges::unique(unique);
    unique.erase(last, rest);
    std::int64_t found = std::ssize(hashes) - std::ssize(unique);
    for (const std::uint64_t hash : unique) found += std::ranges::binary_search(seen_, hash) ? 1 : 0;
    std::vector<std::uint64_t> all;
    std::ranges::set_union(seen_, unique, std::back_inserter(all));
    seen_ = std::move(all);
    return found;
  }

 private:
  std::vector<std::uint64_t> seen_;  ///< sorted
};

/// Epochs of each dataset in the whole run.
std::vector<double> epochs_of(const config::RunConfig& config, const std::vector<data::Dataset>& datasets) {
  std::vector<data::Source> sources;
  for (std::size_t i = 0; i < datasets.size(); ++i)
    sources.push_back(
        {.samples = datasets[i].samples(), .weight = datasets.size() > 1 ? config.data.train[i].weight : 1.0});
  data::Sampler sampler(std::move(sources), std::nullopt);
  sampler.restore({.position = config.train.steps * config.batch.global, .taken = {}});
  std::vector<double> epochs;
  for (std::size_t i = 0; i < datasets.size(); ++i)
    epochs.push_back(static_cast<double>(sampler.state().taken[i]) / static_cast<double>(datasets[i].samples()));
  return epochs;
}

std::string count_text(const std::optional<std::int64_t>& count) { return count ? fmt::format("{}", *count) : "?"; }

void print_sources(const config::RunConfig& config, bool duplicates) {
  const config::Data& data = config.data;
  std::vector<std::string> header{"source", "documents", "tokens", "counted", "bytes/token"};
  if (duplicates) header.emplace_back("duplicates");
  header.emplace_back("share");
  header.emplace_back("epochs");
  TextTable table(std::move(header));
  const auto add = [&](const data::TokenFile& file, Duplicates& known, const std::string& share,
                       const std::string& epochs) {
    const std::optional<data::Sidecar>& sidecar = file.sidecar();
    std::vector<std::string> row{
        file.path(), sidecar ? fmt::format("{}", sidecar->documents) : "?", fmt::format("{}", file.tokens()),
        sidecar ? fmt::format("{}", sidecar->targets) : "?",
        sidecar ? fmt::format("{:.2f}", static_cast<double>(sidecar->text_bytes) / static_cast<double>(file.tokens()))
                : "?"};
    if (duplicates) row.push_back(count_text(known.count(file)));
    row.push_back(share);
    row.push_back(epochs);
    table.add(std::move(row));
  };
  const data::Datasets opened = data::open_split(data, data::Split::train, config.model.vocab_size);
  const std::vector<data::Dataset>& train = *opened;
  const std::vector<double> epochs = epochs_of(config, train);
  double samples = 0;
  for (std::size_t i = 0; i < train.size(); ++i) samples += epochs[i] * static_cast<double>(train[i].samples());
  Duplicates known;
  for (std::size_t i = 0; i < train.size(); ++i) {
    double tokens = 0;
    for (const data::TokenFile& file : train[i].files()) tokens += static_cast<double>(file.tokens());
    for (const data::TokenFile& file : train[i].files())
      add(file, known,
          fmt::format("{:.2f}%", 100 * epochs[i] * static_cast<double>(train[i].samples()) / samples *
                                     static_cast<double>(file.tokens()) / tokens),
          fmt::format("{:.3g}", epochs[i]));
  }
  for (const std::string& set : config::validation_sets(data)) {
    Duplicates of_set = known;  // also counts documents of data.train
    for (const data::Dataset& dataset :
         data::open_datasets(config::validation_files(data, set), false, data.format, data.seq_len,
                             config.model.vocab_size, {}, data::FileTail::padded))
      for (const data::TokenFile& file : dataset.files()) add(file, of_set, "validation", set.empty() ? "-" : set);
  }
  fmt::print("{}{} steps take {:.0f} sequences of {} tokens\n", table.str(), config.train.steps, samples, data.seq_len);
}

/// Prints what data.packing = "best_fit" and "concatenate" do to the sources whose document ends are known.
void print_packing(const config::RunConfig& config) {
  const config::Data& data = config.data;
  TextTable table({"packing", "documents", "best_fit: rows", "padding", "cut", "concatenate: rows", "cut"});
  const auto percent = [](double share) { return fmt::format("{:.2f}%", 100 * share); };
  bool known = false;
  for (const std::vector<config::TokenSource>* sources : {&data.train, &data.validation})
    for (const config::TokenSource& source : *sources) {
      const data::TokenFile file(source.path, data.format, config.model.vocab_size);
      if (!file.has_document_ends()) continue;
      known = true;
      const data::PackingCounts counts = data::plan_packing(file, data.seq_len).counts;
      table.add({file.path(), fmt::format("{}", counts.documents), fmt::format("{}", counts.rows),
                 percent(counts.padding_share()), percent(counts.cut_share()),
                 fmt::format("{}", (file.tokens() - 1) / data.seq_len), percent(counts.concatenated_cut_share())});
    }
  if (known) fmt::print("\n{}", table.str());
}

/// A token of a sample and whether it counts as a target.
struct Shown {
  std::int32_t token = 0;
  bool counts = false;
  bool begins_document = false;
};

std::string text_of(const std::vector<Shown>& tokens, const tokenizer::Tokenizer* tokenizer) {
  std::string text;
  for (std::size_t i = 0; i < tokens.size();) {
    std::vector<std::int32_t> ids;
    const Shown& first = tokens[i];
    do ids.push_back(tokens[i++].token);
    while (i < tokens.size() && tokens[i].counts == first.counts && !tokens[i].begins_document);
    std::string piece;
    if (tokenizer != nullptr)
      piece = tokenizer->decode(ids);
    else
      for (const std::int32_t id : ids) piece += fmt::format("{} ", id);
    if (first.begins_document) text += "\n--- document\n";
    text += first.counts ? piece : "\u27e6" + piece + "\u27e7";
  }
  return text;
}

void print_samples(const config::RunConfig& config, const DataArguments& arguments) {
  const config::Data& data = config.data;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  if (!data.tokenizer.empty()) tokenizer = tokenizer::make_tokenizer(data.tokenizer);
  data::BatchReader reader(data, data::Split::train, config.model.vocab_size, config.run.seed, {},
                           {.position = arguments.first, .taken = {}});
  for (std::int64_t i = 0; i < arguments.samples; ++i) {
    const data::StepBatch batch = reader.next();
    const data::MicrobatchTokens& row = batch.microbatches.front();
    std::vector<Shown> tokens;
    const std::size_t held = row.inputs.size() - static_cast<std::size_t>(row.padding);
    for (std::size_t at = 0; at < held; ++at) {
      const bool counts = at == 0 || row.targets[at - 1] != data::ignored_target;
      const bool begins =
          !row.document_begins.empty() && at > 0 && row.document_begins[at] == static_cast<std::int32_t>(at);
      tokens.push_back({.token = row.inputs[at], .counts = counts, .begins_document = begins});
    }
    const std::string padding = row.padding > 0 ? fmt::format(", {} tokens of padding", row.padding) : "";
    fmt::print("\nsample {}: {} of {} targets count{}\n{}\n", arguments.first + i, row.counted, row.targets.size(),
               padding, printable_lines(text_of(tokens, tokenizer.get())));
  }
}

void verify_file(const std::string& path, const std::string& expected) {
  if (expected.empty()) return;
  const std::string found = data::hash_of_file(path, [](std::int64_t) {});
  if (found != expected)
    throw DataError(fmt::format("{}: its hash is {}, but its sidecar has {}; tokenize again, or copy it again", path,
                                found, expected));
}

void verify(const config::RunConfig& config) {
  const config::Data& data = config.data;
  std::int64_t files = 0, unknown = 0;
  for (const std::vector<config::TokenSource>* sources : {&data.train, &data.validation})
    for (const config::TokenSource& source : *sources) {
      const data::TokenFile file(source.path, data.format, config.model.vocab_size);
      ++(file.sidecar() ? files : unknown);
      if (!file.sidecar()) continue;
      verify_file(file.path(), file.sidecar()->tokens_xxh3);
      verify_file(data::ends_path(file.path()), file.sidecar()->ends_xxh3);
      if (file.masked()) verify_file(data::mask_path(file.path()), file.sidecar()->mask_xxh3);
    }
  fmt::print("{} token file{} match{} the hashes of their sidecars{}\n", files, files == 1 ? "" : "s",
             files == 1 ? "es" : "", unknown == 0 ? "" : fmt::format("; {} have no sidecar", unknown));
}

int show_data(const mpi::Communicator& world, supervise::Watchdog& watchdog, const DataArguments& arguments) {
  install_log({.rank = world.rank(), .host = mpi::hostname()}, environment("TRIREME_LOG"));
  check_launcher(launched(environment), world.size(), mpi_library());
  const auto mark = [&watchdog] { watchdog.mark("looking at the data", supervise::Watchdog::no_step); };
  mark();
  const double timeout = config::read_overrides(arguments.run_file.overrides).comm.timeout_seconds;
  const mpi::Progress files = file_progress(timeout, mark);
  TrainArguments run;
  run.run_file = arguments.run_file;
  config::RunConfig config = read_run_file(world, run, files);
  if (config.train.eval_every == 0) config.data.validation.clear();  // the run reads none
  config = with_tokens(world, std::move(config), timeout, mark);
  (void)mpi::on_first_rank(
      world, "look at the data",
      [&] {
        const config::RunConfig complete = checkpoint::complete_model(config);
        print_sources(complete, arguments.duplicates);
        print_packing(complete);
        if (arguments.verify) verify(complete);
        print_samples(complete, arguments);
        return std::string();
      },
      files);
  watchdog.rest();
  return 0;
}

}  // namespace

void add_data(CLI::App& app, Action& chosen) {
  const auto arguments = std::make_shared<DataArguments>();
  CLI::App* command = add_command(app, "data");
  command->add_option("RUN.toml", arguments->run_file.path, "The run file")->required();
  command->add_option("--set", arguments->run_file.overrides, "Set a key of the run file: --set data.seq_len=1024")
      ->type_name("KEY=VALUE");
  command->add_option("--samples", arguments->samples, "Print so many samples of the run as text")
      ->check(whole_number(0, std::int64_t{1} << 30));
  command->add_option("--first", arguments->first, "The first sample to print, in the order of the run")
      ->check(whole_number(0, std::int64_t{1} << 53));
  command->add_flag("--duplicates", arguments->duplicates,
                    "Count documents whose tokens an earlier document has; reads all tokens, 8 bytes of memory for "
                    "each document");
  command->add_flag("--verify", arguments->verify, "Compare the token files with the hashes of their sidecars");
  command->footer(
      "A row for each token file: documents, tokens, tokens that count in the loss, bytes of text for each token, its "
      "share of the run's samples and how often the run sees it. A second table has the rows of data.seq_len tokens, "
      "padding "
      "and cut documents of both values of data.packing. Text is tokenized first, as by `trireme train`; under "
      "mpirun by all ranks. Samples are in the order of the run; text that does not count in the loss is within white "
      "square brackets (U+27E6, U+27E7).\n\n"
      "Examples:\n"
      "  trireme data inputs/quickstart.toml --samples 3\n"
      "  mpirun -n 2 trireme data run.toml --duplicates");
  command->callback([&chosen, arguments] {
    chosen = [arguments] {
      require_process_manager();
      const double timeout = config::read_overrides(arguments->run_file.overrides).comm.timeout_seconds;
      return with_mpi(timeout, [&](const mpi::Communicator& world, supervise::Watchdog& watchdog) {
        const int code = show_data(world, watchdog, *arguments);
        mpi::collective_try(world, "end the program", [] {});
        return code;
      });
    };
  });
}

}  // namespace trireme::cli
