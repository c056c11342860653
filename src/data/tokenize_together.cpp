// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/tokenize_together.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <sstream>
#include <thread>

#include "data/text/conversation.hpp"
#include "data/token_parts.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/concurrently.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/base/log.hpp"
#include "trireme/base/seconds.hpp"
#include "trireme/base/units.hpp"
#include "trireme/mpi/gather.hpp"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// Ends the work of a rank because another one has failed.
struct Stopped {};

/// Ranks at work meet every two seconds, so that a failure ends all of them soon; those that have finished wait there.
class Meetings {
 public:
  Meetings(const mpi::Communicator& world, const TokenizeTogether& together, std::int64_t all_bytes)
      : world_(world), together_(together), all_bytes_(all_bytes) {}

  /// To be called often while this rank works. bytes: read by this rank. Throws Stopped.
  void work(std::int64_t bytes) {
    bytes_ = bytes;
    if (seconds_since(met_) >= between_seconds && !meet(true, false)) throw Stopped{};
  }
  /// This rank has ended its work; returns when all have, or any has failed.
  void end(bool failed) {
    while (meet(false, failed)) {
    }
  }

 private:
  static constexpr double between_seconds = 2;

  /// Returns whether any rank works on and none has failed.
  bool meet(bool working, bool failed) {
    const std::uint64_t states = mpi::sum_words(world_, (working ? 1 : 0) | (failed ? std::uint64_t{1} << 32 : 0));
    const std::uint64_t bytes = mpi::sum_words(world_, static_cast<std::uint64_t>(bytes_));
    const auto ranks = static_cast<std::int64_t>(states & 0xffffffff);
    met_ = Clock::now();
    if (together_.mark) together_.mark();
    if (world_.rank() == 0 && together_.progress)
      together_.progress({.bytes = static_cast<std::int64_t>(bytes),
                          .all_bytes = all_bytes_,
                          .ranks = ranks,
                          .seconds = seconds_since(begin_)});
    return ranks > 0 && states >> 32 == 0;
  }

  const mpi::Communicator& world_;
  const TokenizeTogether& together_;
  std::int64_t all_bytes_;
  std::int64_t bytes_ = 0;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point met_ = begin_;
};

/// Tokens for each byte of a file, from its first MiB of text; 0 if there are none.
double sampled_tokens_per_byte(const TextFile& file, const tokenizer::Tokenizer& tokenizer,
                               const TokenizeOptions& options) {
  constexpr std::size_t encoded_bytes = std::size_t{1} << 20, read_bytes = std::size_t{8} << 20;
  text::Stream stream(file.path);
  std::string read(read_bytes, '\0');
  read.resize(stream.read(read));
  if (read.empty()) return 0;
  std::string sample = read.substr(0, encoded_bytes);
  const std::size_t last = sample.rfind('\n');
  if (last != std::string::npos && read.size() > sample.size()) sample.resize(last + 1);
  std::size_t tokens = 0;
  if (options.field.empty()) {
    tokens = text::encode(tokenizer, text::Part{.text = sample, .begins = true, .ends = false}).ids.size();
  } else {
    const text::Lines lines{.text = sample,
                            .field = options.field,
                            .response = options.response,
                            .chat = options.chat,
                            .marks_divide = !options.chat.empty() && text::check_chat(options.chat, tokenizer),
                            .name = stream.name()};
    for (const text::EncodedPart& part : text::encode(tokenizer, lines)) tokens += part.ids.size();
  }
  const double of_text = static_cast<double>(tokens) / static_cast<double>(std::max<std::size_t>(sample.size(), 1));
  if (!file.compressed) return of_text;
  return of_text * static_cast<double>(read.size()) / static_cast<double>(std::max<std::int64_t>(stream.consumed(), 1));
}

/// Logs how much disk space the tokens take, twice for a while, and checks that it is there.
void check_space(const std::vector<TextFile>& files, const std::string& output, const tokenizer::Tokenizer& tokenizer,
                 const TokenizeOptions& options, const TokenizeTogether& together) {
  const auto largest = std::ranges::max_element(files, {}, &TextFile::bytes);
  const double tokens_per_byte = sampled_tokens_per_byte(*largest, tokenizer, options);
  double bytes = 0;
  for (const TextFile& file : files) bytes += static_cast<double>(file.bytes);
  const bool masked = !options.response.empty() || !options.chat.empty();
  const double of_token = static_cast<double>(size_of(raw_token_type(tokenizer.vocab_size()))) + (masked ? 1 : 0);
  constexpr double parts_and_file = 2, margin = 1.1;
  const Bytes needed{static_cast<std::int64_t>(bytes * tokens_per_byte * of_token * parts_and_file * margin)};
  std::error_code error;
  const fs::space_info space = fs::space(together.parts, error);
  if (error) return;  // writing finds out
  const Bytes free{static_cast<std::int64_t>(space.available)};
  log::info(fmt::format("{}: about {:.3g} tokens; {} of disk space are needed in {}, {} are free", together.described,
                        bytes * tokens_per_byte, to_text(needed), fs::absolute(together.parts).parent_path().string(),
                        to_text(free)));
  if (free < needed)
    throw WriteError(
        fmt::format("{}: {} of text make about {:.3g} tokens, which need {} of disk space (twice their size, until the "
                    "parts are joined), but {} are free; free space, or choose another directory",
                    output, to_text(Bytes{static_cast<std::int64_t>(bytes)}), bytes * tokens_per_byte, to_text(needed),
                    to_text(free)));
}

/// Whether a file of another node's rank appears here within seconds. Attributes of directories that a client of NFS
/// has cached are read anew when they are opened.
bool appears(const std::string& path) {
  using namespace std::chrono_literals;
  constexpr int tries = 50;
  std::error_code error;
  for (int i = 0; i < tries; ++i) {
    if (fs::exists(path, error)) return true;
    for (fs::path at = fs::absolute(path).parent_path(); at.has_relative_path(); at = at.parent_path())
      (void)fs::directory_iterator(at, error);
    std::this_thread::sleep_for(100ms);
  }
  return fs::exists(path, error);
}

/// Every rank looks for a file that the first one has made.
void require_shared(const mpi::Communicator& world, const std::string& directory) {
  const std::string path = mpi::on_first_rank(world, "make a file in the folder of the parts", [&] {
    std::string name = fmt::format("{}/seen-{:x}", directory, Clock::now().time_since_epoch().count());
    io::write_text(name, "");
    return name;
  });
  mpi::collective_try(world, "look for the folder of the parts", [&] {
    if (!appears(path))
      throw EnvironmentError(
          fmt::format("{} is not seen here: ranks tokenize into one directory; choose one on a file system that all "
                      "nodes share",
                      directory));
  });
  std::error_code ignored;
  if (world.rank() == 0) fs::remove(path, ignored);
}

/// The files and units of a job, equal on all ranks.
struct Work {
  std::vector<TextFile> files;
  std::vector<TextUnit> units;
  std::vector<std::size_t> missing;  ///< units without a part
};

std::string encode(const std::vector<std::size_t>& numbers) {
  std::string text;
  for (const std::size_t number : numbers) text += fmt::format("{} ", number);
  return text;
}

Work share_work(const mpi::Communicator& world, const tokenizer::Tokenizer& tokenizer,
                const std::vector<std::string>& inputs, const std::string& output, const TokenizeOptions& options,
                const TokenizeTogether& together) {
  const auto units_of_files = [&](const std::vector<TextFile>& files) {
    std::int64_t bytes = 0;
    for (const TextFile& file : files) bytes += file.bytes;
    return units_of(files, !options.field.empty(), bytes_of_unit(bytes));
  };
  const std::string found = mpi::on_first_rank(
      world, "look at the text files",
      [&] {
        std::error_code error;
        fs::create_directories(together.parts, error);
        if (error)
          throw WriteError(
              fmt::format("{}: cannot be created: {}; choose another directory", together.parts, error.message()));
        const std::vector<TextFile> files = look_at_files(inputs, true);
        const std::vector<TextUnit> units = units_of_files(files);
        const TokenParts parts(together.parts, identity_of_ids(tokenizer, options), files, tokenizer.vocab_size());
        std::vector<char> complete(units.size());
        io::concurrently(units.size(), [&](std::size_t i) { complete[i] = parts.is_complete(i, units[i]) ? 1 : 0; });
        std::vector<std::size_t> missing;
        for (std::size_t i = 0; i < units.size(); ++i)
          if (complete[i] == 0) missing.push_back(i);
        if (missing.size() == units.size())
          check_space(files, output, tokenizer, options, together);
        else
          log::info(fmt::format("{}: {} of {} parts are there already", together.described,
                                units.size() - missing.size(), units.size()));
        return encode(missing) + '\n' + data::encode(files);
      },
      together.files);
  const std::size_t line = found.find('\n');
  Work work{.files = decode_files(found.substr(line + 1)), .units = {}, .missing = {}};
  work.units = units_of_files(work.files);
  std::istringstream numbers(found.substr(0, line));
  for (std::size_t number = 0; numbers >> number;) work.missing.push_back(number);
  return work;
}

/// Tokenizes this rank's units.
void write_parts(const Work& work, const std::vector<int>& rank_of, const mpi::Communicator& world,
                 const TokenParts& parts, const tokenizer::Tokenizer& tokenizer, const TokenizeOptions& options,
                 Meetings& meetings) {
  std::int64_t finished = 0;
  for (std::size_t i = 0; i < work.missing.size(); ++i) {
    if (rank_of[i] != world.rank()) continue;
    const TextUnit& unit = work.units[work.missing[i]];
    const bool hashes = unit.kind == TextUnit::Kind::hash;
    parts.write(work.missing[i], unit, tokenizer, options,
                [&](std::int64_t bytes) { meetings.work(finished + (hashes ? 0 : bytes)); });
    if (!hashes) finished += unit.end - unit.begin;
    meetings.work(finished);
  }
}

TokenizedTogether join_parts(const Work& work, const TokenParts& parts, const tokenizer::Tokenizer& tokenizer,
                             const std::string& output, const TokenizeOptions& options) {
  Documents documents(tokenizer, output, options);
  TokenizedTogether result;
  for (const TextFile& file : work.files)
    result.inputs.push_back({.bytes = file.bytes, .changed = file.changed, .xxh3 = {}});
  for (std::size_t i = 0; i < work.units.size(); ++i) {
    const TextUnit& unit = work.units[i];
    const auto hashes = parts.read(i, unit, [&](const Encoded& encoded) { documents.add(encoded); });
    invariant(hashes.size() == (unit.kind == TextUnit::Kind::lines ? 0 : unit.files), "a file of a part has its hash");
    for (std::size_t file = 0; file < hashes.size(); ++file) result.inputs[unit.file + file].xxh3 = hashes[file];
  }
  Sidecar origin = origin_of(tokenizer, options);
  for (std::size_t i = 0; i < work.files.size(); ++i)
    origin.sources.push_back({.name = work.files[i].path, .bytes = work.files[i].bytes, .xxh3 = result.inputs[i].xxh3});
  result.counts = documents.finish(std::move(origin));
  return result;
}

}  // namespace

TokenizedTogether tokenize_together(const mpi::Communicator& world, const tokenizer::Tokenizer& tokenizer,
                                    const std::vector<std::string>& inputs, const std::string& output,
                                    const TokenizeOptions& options, const TokenizeTogether& together) {
  const Work work = share_work(world, tokenizer, inputs, output, options, together);
  require_shared(world, together.parts);
  std::vector<TextUnit> missing;
  std::int64_t all_bytes = 0;
  for (const std::size_t number : work.missing) {
    missing.push_back(work.units[number]);
    if (missing.back().kind != TextUnit::Kind::hash) all_bytes += missing.back().end - missing.back().begin;
  }
  const std::vector<int> rank_of = assign(missing, work.files, world.size());
  const TokenParts parts(together.parts, identity_of_ids(tokenizer, options), work.files, tokenizer.vocab_size());
  Meetings meetings(world, together, all_bytes);
  std::exception_ptr failure;
  bool stopped = false;
  try {
    write_parts(work, rank_of, world, parts, tokenizer, options, meetings);
  } catch (const Stopped&) {
    stopped = true;
  } catch (const mpi::CollectiveError&) {
    throw;
  } catch (const Error& error) {
    if (error.code() == ExitCode::hang) throw;
    failure = std::current_exception();
  }
  if (!stopped) meetings.end(failure != nullptr);
  mpi::collective_try(world, "tokenize the text", [&] {
    if (failure) std::rethrow_exception(failure);
  });
  TokenizedTogether result;
  (void)mpi::on_first_rank(
      world, "join the parts",
      [&] {
        result = join_parts(work, parts, tokenizer, output, options);
        result.work_bytes.resize(static_cast<std::size_t>(world.size()));
        for (std::size_t i = 0; i < missing.size(); ++i)
          result.work_bytes[static_cast<std::size_t>(rank_of[i])] += work_of(missing[i], work.files);
        return std::string();
      },
      together.files);
  return result;
}

}  // namespace trireme::data
