// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/token_cache.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>
#include <variant>

#include "base/io/json.hpp"
#include "data/text/inputs.hpp"
#include "data/token_parts.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/concurrently.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/base/log.hpp"
#include "trireme/base/sha256.hpp"
#include "trireme/config/text_source.hpp"
#include "trireme/data/sidecar.hpp"
#include "trireme/supervise/directory_lock.hpp"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t list_version = 1;
constexpr std::size_t name_digits = 24;  ///< of folders and lists, hexadecimal

/// ${TRIREME_CACHE:-${XDG_CACHE_HOME:-~/.cache}/trireme}/tokens, as jobs/setup.sh; "" without a home.
std::string user_cache() {
  const auto variable = [](const char* name) {
    const char* text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing sets it
    return std::string(text == nullptr ? "" : text);
  };
  if (const std::string trireme = variable("TRIREME_CACHE"); !trireme.empty()) return trireme + "/tokens";
  if (const std::string xdg = variable("XDG_CACHE_HOME"); !xdg.empty()) return xdg + "/trireme/tokens";
  if (const std::string home = variable("HOME"); !home.empty()) return home + "/.cache/trireme/tokens";
  return "";
}

/// The folder that holds all files; that of the first file where this is the root directory.
fs::path common_folder(const std::vector<std::string>& files) {
  const auto folder_of = [](const std::string& file) { return fs::path(file).parent_path(); };
  fs::path common = folder_of(files.front());
  for (const std::string& file : files) {
    const fs::path folder = folder_of(file);
    const auto [end, rest] = std::mismatch(common.begin(), common.end(), folder.begin(), folder.end());
    fs::path shared;
    for (auto at = common.begin(); at != end; ++at) shared /= *at;
    common = shared;
  }
  return common.has_relative_path() ? common : folder_of(files.front());
}

bool can_write(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  return !error && ::access(folder.c_str(), W_OK | X_OK) == 0;
}

TokenizeOptions given_options(const config::TextSource& text, const std::string& spec) {
  return {.spec = spec,
          .field = text.field,
          .response = text.response,
          .chat = text.chat,
          .plain = text.plain,
          .skip_bad = text.skip_bad};
}

/// The given options, with the default field of JSON lines if the first file has such.
TokenizeOptions options_of(const config::TextSource& text, const std::string& first, const std::string& spec) {
  TokenizeOptions options = given_options(text, spec);
  if (!options.field.empty() || options.plain) return options;
  text::Stream stream(first);
  std::string beginning(64, '\0');
  beginning.resize(stream.read(beginning));
  const std::size_t at = beginning.find_first_not_of(" \t\r\n");
  if (at != std::string::npos && beginning[at] == '{') options.field = "text";
  return options;
}

/// A text source and its cache, on the first rank.
class TokenCache {
 public:
  TokenCache(std::string described, const config::TextSource& text, const std::vector<std::string>& inputs,
             const tokenizer::Tokenizer& tokenizer, TokenizeOptions options)
      : described_(std::move(described)),
        inputs_(inputs),
        options_(std::move(options)),
        identity_(identity_of_ids(tokenizer, options_)) {
    std::vector<std::string> absolute;
    for (const std::string& input : inputs_) absolute.push_back(fs::absolute(input).lexically_normal().string());
    const fs::path beside = common_folder(absolute);
    std::string names;
    for (const std::string& path : absolute) names += fs::path(path).lexically_relative(beside).string() + '\0';
    if (!text.cache.empty()) {
      add_place(text.cache, beside.string() + '\0' + names);
      return;
    }
    add_place((beside / ".trireme-tokens").string(), names);  // also found when the whole folder is moved
    if (const std::string user = user_cache(); !user.empty()) add_place(user, beside.string() + '\0' + names);
  }

  /// The token file of a complete cache of the files as they are; none if there is no such cache.
  [[nodiscard]] std::optional<std::string> find() {
    for (const Place& place : places_)
      if (auto found = find_in(place)) return found;
    return std::nullopt;
  }

  /// Reserves the folder where the cache is to be made. Returns false while another job makes it.
  [[nodiscard]] bool reserve() {
    if (chosen_ == nullptr) choose_place();
    std::error_code error;
    fs::create_directories(parts(), error);
    try {
      lock_ = std::make_unique<supervise::DirectoryLock>(parts(), "the token cache of " + described_);
      return true;
    } catch (const CheckpointError& error) {  // it is in use
      if (std::exchange(told_, true)) return false;
      log::info(fmt::format("{}: another job tokenizes it, this one waits: {}", described_, error.what()));
      return false;
    } catch (const WriteError&) {
      if (!fs::exists(parts(), error)) return false;  // the other job has just removed it
      throw;
    }
  }

  /// Puts the written tokens in place; returns their path.
  [[nodiscard]] std::string publish(const std::vector<TokenizedInput>& made) {
    std::vector<TextFile> files;
    for (std::size_t i = 0; i < made.size(); ++i)
      files.push_back({.path = inputs_[i], .bytes = made[i].bytes, .changed = made[i].changed, .xxh3 = made[i].xxh3});
    const std::string folder = chosen_->directory + "/" + name_of(files);
    std::error_code error;
    if (!fs::exists(sidecar_path(folder + "/tokens.bin"), error)) {
      fs::remove_all(folder, error);
      fs::rename(new_folder(), folder, error);
      if (error)
        throw WriteError(fmt::format("{}: cannot be renamed to {}: {}", new_folder(), folder, error.message()));
      io::sync_directory(chosen_->directory);
    }
    write_list(*chosen_, files);
    fs::remove_all(parts(), error);
    lock_.reset();
    fs::remove_all(parts(), error);
    return folder + "/tokens.bin";
  }

  /// Folder of the parts, and the token file that is written.
  [[nodiscard]] std::string parts() const { return chosen_->directory + "/" + chosen_->list + ".building"; }
  [[nodiscard]] std::string new_file() const { return new_folder() + "/tokens.bin"; }
  [[nodiscard]] const TokenizeOptions& options() const { return options_; }

 private:
  /// A folder of caches, and the name of this source's list in it.
  struct Place {
    std::string directory;
    std::string list;
  };

  [[nodiscard]] std::string new_folder() const { return parts() + "/joined"; }

  void add_place(const std::string& directory, const std::string& names) {
    Sha256 hash;
    hash.add(identity_ + '\0' + names);
    places_.push_back(
        {.directory = fs::absolute(directory).lexically_normal().string(), .list = hash.hex().substr(0, name_digits)});
  }

  void choose_place() {
    for (const Place& place : places_)
      if (can_write(place.directory)) {
        chosen_ = &place;
        return;
      }
    std::string tried;
    for (const Place& place : places_) tried += "\n  " + place.directory;
    throw WriteError(
        fmt::format("{}: no folder for its token cache may be written to:{}\nname one in the source: \"...#cache=DIR\"",
                    described_, tried));
  }

  [[nodiscard]] std::string name_of(const std::vector<TextFile>& files) const {
    Sha256 hash;
    hash.add(fmt::format("{} {}\n", identity_, options_.skip_bad));
    for (const TextFile& file : files) hash.add(fmt::format("{} {}\n", file.bytes, file.xxh3));
    return hash.hex().substr(0, name_digits);
  }

  [[nodiscard]] static std::string list_path(const Place& place) {
    return place.directory + "/" + place.list + ".json";
  }

  static void write_list(const Place& place, const std::vector<TextFile>& files) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const TextFile& file : files) list.push_back({file.bytes, file.changed, file.xxh3, file.path});
    const nlohmann::ordered_json json{{"version", list_version}, {"files", std::move(list)}};
    io::replace_text(list_path(place), json.dump(0, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  }

  /// Sizes, times and hashes of the files when the cache was made; empty if there is no list.
  [[nodiscard]] static std::vector<TextFile> read_list(const Place& place) {
    constexpr std::int64_t most_bytes = std::int64_t{1} << 30;
    std::error_code error;
    if (!fs::exists(list_path(place), error)) return {};
    const nlohmann::json json = io::parse_or_discard(io::read_text(list_path(place), most_bytes));
    std::vector<TextFile> files;
    try {
      if (json.at("version").get<std::int64_t>() != list_version) return {};
      for (const nlohmann::json& file : json.at("files"))
        files.push_back({.path = {},
                         .bytes = file.at(0).get<std::int64_t>(),
                         .changed = file.at(1).get<std::int64_t>(),
                         .xxh3 = file.at(2).get<std::string>()});
    } catch (const nlohmann::json::exception&) {
      log::warning(fmt::format("{} is damaged: the token cache is made again", list_path(place)));
      return {};
    }
    return files;
  }

  [[nodiscard]] std::optional<std::string> find_in(const Place& place) {
    const std::vector<TextFile> made = read_list(place);
    if (made.size() != inputs_.size()) return std::nullopt;
    std::vector<TextFile> files = look_at_files(inputs_, false);
    std::vector<std::size_t> changed;
    for (std::size_t i = 0; i < files.size(); ++i) {
      if (files[i].bytes != made[i].bytes) return std::nullopt;
      files[i].xxh3 = made[i].xxh3;
      if (files[i].changed != made[i].changed) changed.push_back(i);
    }
    if (!changed.empty())
      log::info(fmt::format("{}: {} of {} files have another modification time: hashing them", described_,
                            changed.size(), files.size()));
    io::concurrently(changed.size(), [&](std::size_t i) {
      TextFile& file = files[changed[i]];
      file.xxh3 = hash_of_file(file.path, [](std::int64_t) {});
    });
    const std::string tokens = place.directory + "/" + name_of(files) + "/tokens.bin";
    std::error_code error;
    if (!fs::exists(sidecar_path(tokens), error)) return std::nullopt;
    if (!changed.empty() && ::access(place.directory.c_str(), W_OK) == 0) write_list(place, files);
    return tokens;
  }

  std::string described_;
  const std::vector<std::string>& inputs_;
  TokenizeOptions options_;
  std::string identity_;
  std::vector<Place> places_;
  const Place* chosen_ = nullptr;
  std::unique_ptr<supervise::DirectoryLock> lock_;
  bool told_ = false;  ///< that another job makes it
};

/// Text sources in a row that share a cache.
struct TextRun {
  std::string described;  ///< "data.train web/*.jsonl"
  config::TextSource text;
  std::vector<std::string> paths;
};

std::string cached_tokens(const mpi::Communicator& world, const TextRun& run, const std::string& spec,
                          const TokenCacheWork& work) {
  using namespace std::chrono_literals;
  const auto tokenizer = tokenizer::make_tokenizer(spec);
  std::vector<std::string> inputs;
  std::optional<TokenCache> cache;
  const auto look = [&]() -> std::string {
    if (!cache) {
      inputs = text::expand_inputs(run.paths);
      for (const std::string& path : inputs)
        if (path == "-") throw ConfigError(run.described + ": standard input cannot be read again by later starts");
      cache.emplace(run.described, run.text, inputs, *tokenizer, options_of(run.text, inputs.front(), spec));
    }
    if (auto found = cache->find()) return "found " + *found;
    if (!cache->reserve()) {
      std::this_thread::sleep_for(500ms);
      return "wait";
    }
    if (auto found = cache->find()) return "found " + *found;  // another job has made it meanwhile
    return "make " + cache->parts() + '\n' + cache->options().field;
  };
  std::string state;
  do {
    state = mpi::on_first_rank(world, "look for the token cache", look, work.files);
    if (work.mark) work.mark();
  } while (state == "wait");
  if (state.starts_with("found ")) return state.substr(6);
  const std::size_t line = state.find('\n');
  const std::string parts = state.substr(5, line - 5);
  TokenizeOptions options = given_options(run.text, spec);
  options.field = state.substr(line + 1);
  options.threads = work.threads;
  const TokenizedTogether made = tokenize_together(world, *tokenizer, inputs, cache ? cache->new_file() : "", options,
                                                   {.parts = parts,
                                                    .described = run.described,
                                                    .progress =
                                                        [&](const TokenizeProgress& progress) {
                                                          if (work.progress) work.progress(run.described, progress);
                                                        },
                                                    .mark = work.mark,
                                                    .files = work.files});
  return mpi::on_first_rank(
      world, "put the token cache in place",
      [&] {
        const std::string path = cache->publish(made.inputs);
        log::info(fmt::format("{}: {} tokens of {} documents are in {}", run.described, made.counts.tokens,
                              made.counts.documents, path));
        return path;
      },
      work.files);
}

/// Replaces the texts in a list.
std::vector<config::TokenSource> with_caches(const mpi::Communicator& world,
                                             const std::vector<config::TokenSource>& sources, bool weighted,
                                             const std::string& key, const std::string& spec,
                                             const TokenCacheWork& work) {
  std::vector<config::TokenSource> replaced;
  for (std::size_t i = 0; i < sources.size();) {
    config::TokenSource source = sources[i];
    if (!config::names_text(source.path)) {
      replaced.push_back(std::move(source));
      ++i;
      continue;
    }
    TextRun run{.described = fmt::format("{} {}", key, source.path),
                .text = std::get<config::TextSource>(config::parse_text_source(source.path)),
                .paths = {}};
    for (const std::size_t first = i; i < sources.size(); ++i) {
      if (i > first && (weighted || sources[i].set != source.set || !config::names_text(sources[i].path))) break;
      config::TextSource text = std::get<config::TextSource>(config::parse_text_source(sources[i].path));
      const std::string path = std::exchange(text.path, run.text.path);
      if (text != run.text) break;
      run.paths.push_back(path);
    }
    const config::MixOptions mix = config::mix_options_of(source.path);
    source.path = cached_tokens(world, run, spec, work);
    if (mix.epochs > 0) source.path = config::with_option(source.path, fmt::format("epochs={}", mix.epochs));
    if (mix.temperature > 0)
      source.path = config::with_option(source.path, fmt::format("temperature={}", mix.temperature));
    replaced.push_back(std::move(source));
  }
  return replaced;
}

}  // namespace

config::RunConfig with_token_caches(const mpi::Communicator& world, config::RunConfig config,
                                    const TokenCacheWork& work) {
  if (!config::resolves_sources(config)) return config;
  config::Data& data = config.data;
  data.train = with_caches(world, data.train, data.weighted, "data.train", data.tokenizer, work);
  if (config.train.eval_every > 0)
    data.validation = with_caches(world, data.validation, false, "data.validation", data.tokenizer, work);
  return config;
}

}  // namespace trireme::data
