// SPDX-License-Identifier: Apache-2.0
#include "train/file_agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <span>
#include <sstream>

#include "data/fingerprint.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/hash.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/base/io/input_file.hpp"
#include "trireme/checkpoint/load/weights.hpp"
#include "trireme/data/batch_reader.hpp"
#include "trireme/data/token_file.hpp"
#include "trireme/huggingface/huggingface.hpp"
#include "trireme/mpi/broadcast.hpp"
#include "trireme/mpi/collective_try.hpp"
#include "trireme/mpi/gather.hpp"
#include "trireme/mpi/topology.hpp"

namespace trireme::train {
namespace {

using Kind = InputPath::Kind;

/// The header of a safetensors file: its length in 8 bytes, then as many bytes of JSON.
std::string header_hash(const io::InputFile& file) {
  std::array<std::byte, 8> words{};
  if (file.size() < static_cast<std::int64_t>(words.size())) return "";
  file.read_at(0, words);
  std::uint64_t length = 0;
  std::memcpy(&length, words.data(), words.size());
  const auto rest = static_cast<std::uint64_t>(file.size()) - words.size();
  const auto most = static_cast<std::uint64_t>(huggingface::most_header_bytes);
  std::string header(static_cast<std::size_t>(std::min({length, rest, most})), '\0');
  file.read_at(static_cast<std::int64_t>(words.size()), std::as_writable_bytes(std::span(header)));
  return fmt::format("header {:x} ", fnv1a(header));
}

/// Names a kind of file: in text, and as the first letter of an encoded path.
struct KindName {
  const char* noun;
  char letter;
};
KindName name_of(Kind kind) {
  switch (kind) {
    case Kind::tokens: return {.noun = "token file", .letter = 't'};
    case Kind::weights: return {.noun = "weight file", .letter = 'w'};
    case Kind::questions: return {.noun = "file of choices", .letter = 'q'};
    case Kind::no_tokens: return {.noun = "token file", .letter = 'T'};
    case Kind::no_weights: return {.noun = "weight file", .letter = 'W'};
  }
  return {};
}

Error error_of(Kind kind, const std::string& message) {
  if (kind == Kind::weights || kind == Kind::no_weights) return CheckpointError(message);
  return DataError(message);
}

bool absent_on_first_rank(Kind kind) { return kind == Kind::no_tokens || kind == Kind::no_weights; }

/// The first rank's digests of some files, on all ranks.
std::vector<FileDigest> share(const mpi::Communicator& world, const std::vector<FileDigest>& digests) {
  std::string text;
  for (const FileDigest& digest : digests) text += fmt::format("{} {}\n", digest.bytes, digest.hash);
  std::istringstream numbers(mpi::broadcast_text(world, std::move(text)));
  std::vector<FileDigest> shared;
  for (FileDigest digest; numbers >> digest.bytes >> digest.hash;) shared.push_back(digest);
  return shared;
}

}  // namespace

std::string encode(const std::vector<InputPath>& inputs) {
  std::string text;
  for (const InputPath& input : inputs) text += name_of(input.kind).letter + input.path + '\0';
  return text;
}

std::vector<InputPath> decode_inputs(const std::string& text) {
  std::vector<InputPath> inputs;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line, '\0');)
    for (const Kind kind : {Kind::tokens, Kind::weights, Kind::questions, Kind::no_tokens, Kind::no_weights})
      if (line[0] == name_of(kind).letter) inputs.push_back({.kind = kind, .path = line.substr(1)});
  return inputs;
}

std::vector<InputPath> input_paths(const config::RunConfig& config) {
  std::vector<InputPath> inputs;
  const auto add = [&](Kind kind, std::string path) {
    InputPath input{.kind = kind, .path = std::move(path)};
    if (std::ranges::find(inputs, input) == inputs.end()) inputs.push_back(std::move(input));
  };
  const auto add_tokens = [&](const std::vector<config::TokenSource>& sources) {
    for (const config::TokenSource& source : sources) {
      const data::TokenPlace place = data::find_token_file(source.path, config.data.format);
      for (std::string& path : data::paths_of(place)) add(Kind::tokens, std::move(path));
      for (std::string& path : data::missing_beside(place, config.data.format)) add(Kind::no_tokens, std::move(path));
    }
  };
  add_tokens(config.data.train);
  if (config.train.eval_every > 0) add_tokens(config.data.validation);
  const std::string& from = config.model.from;
  if (from.empty() || checkpoint::is_checkpoint(from)) return inputs;
  for (std::string& path : huggingface::HfDirectory::open(from).files()) add(Kind::weights, std::move(path));
  std::string single = from + "/model.safetensors";  // it would go before an index
  if (std::ranges::none_of(inputs, [&](const InputPath& input) { return input.path == single; }))
    add(Kind::no_weights, std::move(single));
  return inputs;
}

std::int64_t blocks_of_each(std::int64_t files) {
  constexpr std::int64_t together = 4096;
  return std::clamp<std::int64_t>(together / std::max<std::int64_t>(files, 1), 16, 256);
}

FileDigest digest_of(const InputPath& input, std::int64_t blocks, const std::function<void()>& after_block) try {
  if (absent_on_first_rank(input.kind))
    return {.bytes = io::status_of(input.path).kind == io::PathKind::nothing ? 0 : 1};
  const io::InputFile file(input.path, name_of(input.kind).noun);
  const bool tensors = input.path.ends_with(".safetensors");
  const std::string header = tensors ? header_hash(file) : "";
  return {.bytes = file.size(), .hash = fnv1a(header + data::sampled_hash(file, blocks, after_block))};
} catch (const DataError& error) {
  throw error_of(input.kind, error.what());
}

std::string copy_mismatch(const InputPath& input, const FileDigest& here, const FileDigest& first_rank) {
  if (here == first_rank) return "";
  if (absent_on_first_rank(input.kind))
    return fmt::format("{} {} lies here, but not on rank 0. Copy it to every node, or remove it from all.",
                       name_of(input.kind).noun, input.path);
  const std::string sizes = fmt::format("{} bytes here, {} bytes on rank 0", here.bytes, first_rank.bytes);
  return fmt::format(
      "{} {} is not the one that rank 0 reads: {}. Copy it to every node again, or put it on a file system that all "
      "nodes share.",
      name_of(input.kind).noun, input.path,
      here.bytes == first_rank.bytes ? fmt::format("the size, {} bytes, is the same, the contents differ", here.bytes)
                                     : sizes);
}

void agree_on_input_files(const mpi::Communicator& world, const std::vector<InputPath>& inputs, double timeout_seconds,
                          const std::function<void()>& mark) {
  using Clock = std::chrono::steady_clock;
  const mpi::FileView view = mpi::probe_file_view(world);
  const auto reads = [&](std::size_t i) {
    if (world.rank() == 0) return true;
    return !view.of_first_rank && i % static_cast<std::size_t>(view.ranks) == static_cast<std::size_t>(view.place);
  };
  // Finished ranks wait in any_rank for those that still read, which call it from time to time as a sign of progress.
  auto told = Clock::now();
  const auto tell = [&] {
    if (std::chrono::duration<double>(Clock::now() - told).count() < timeout_seconds / 8) return;
    (void)mpi::any_rank(world, true);
    mark();
    told = Clock::now();
  };
  const std::int64_t blocks = blocks_of_each(
      std::ranges::count_if(inputs, [](const auto& input) { return !absent_on_first_rank(input.kind); }));
  std::vector<FileDigest> digests(inputs.size());
  std::optional<Error> failure;
  try {
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (reads(i)) digests[i] = digest_of(inputs[i], blocks, tell);
  } catch (const Error& error) {
    if (error.code() != ExitCode::data && error.code() != ExitCode::checkpoint) throw;  // of MPI
    failure = error;
  }
  while (mpi::any_rank(world, false)) mark();
  const std::vector<FileDigest> of_first_rank = share(world, failure ? std::vector<FileDigest>{} : digests);
  for (std::size_t i = 0; i < of_first_rank.size() && !failure; ++i) {
    if (!reads(i)) continue;
    const std::string mismatch = copy_mismatch(inputs[i], digests[i], of_first_rank[i]);
    if (!mismatch.empty()) failure = error_of(inputs[i].kind, mismatch);
  }
  const std::uint64_t failed = mpi::sum_words(world, failure ? 1 : 0);
  mpi::collective_try(world, "compare the files that ranks read", [&] {
    if (!failure) return;
    throw Error(failure->code(), failed == 1 ? failure->what()
                                             : fmt::format("{} {} ranks found a difference.", failure->what(), failed));
  });
}

}  // namespace trireme::train
