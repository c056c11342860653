// SPDX-License-Identifier: Apache-2.0
#include "trireme/tokenizer/files.hpp"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/io/json.hpp"
#include "tokenizer/config_beside.hpp"
#include "tokenizer/sentencepiece_json.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/hash.hpp"
#include "trireme/base/io/entries.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/base/io/input_file.hpp"
#include "trireme/huggingface/hub.hpp"
#include "trireme/tokenizer/library.hpp"
#include "trireme/tokenizer/tokenizer.hpp"

namespace trireme::tokenizer {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::int64_t most_bytes = std::int64_t{256} << 20;
constexpr std::string_view sentencepiece = "spm:";
constexpr std::string_view huggingface = "hf:";
constexpr const char* recorded = "trireme_tokenizer";  ///< key of tokenizer_config.json: the spec, with a relative path
constexpr const char* recorded_library = "trireme_tokenizer_library";  ///< key of the same file: `library_of`
constexpr const char* config_name = "tokenizer_config.json";
constexpr const char* chat_template = "chat_template.jinja";

/// The part before the path, "spm:" or "hf:"; "" of a tokenizer without files.
std::string_view scheme_of(std::string_view spec) {
  for (const std::string_view scheme : {sentencepiece, huggingface})
    if (spec.starts_with(scheme)) return scheme;
  return {};
}

const char* file_name_of(std::string_view scheme) {
  return scheme == huggingface ? "tokenizer.json" : "tokenizer.model";
}

/// Spec of `path`, which has no scheme; "" if it is not a tokenizer.
std::string spec_of_path(const std::string& path) {
  if (io::status_of(path).kind == io::PathKind::directory) {
    const std::string found = spec_in_directory(path);
    return found == "bytes" ? found : std::string(scheme_of(found)) + (found.empty() ? "" : path);
  }
  if (io::status_of(path).kind != io::PathKind::file) return "";
  return path.ends_with(".json")    ? std::string(huggingface) + path
         : path.ends_with(".model") ? std::string(sentencepiece) + path
                                    : "";
}

std::string read(const std::string& path, const char* kind) { return io::InputFile(path, kind).read_whole(most_bytes); }

std::string utf8(std::uint32_t character) {  // up to U+07FF
  if (character < 0x80) return {static_cast<char>(character)};
  return {static_cast<char>(0xC0 | character >> 6), static_cast<char>(0x80 | (character & 0x3F))};
}

/// Bytes as the byte-level tokenizers write them: those that show as themselves, the others from U+0100 on.
Json byte_vocabulary() {
  Json vocabulary = Json::object();
  std::uint32_t next = 0x100;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const bool shows = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    vocabulary[utf8(shows ? byte : next++)] = byte;
  }
  return vocabulary;
}

/// "bytes": a byte-level tokenizer without merges, whose ids are the bytes.
std::map<std::string, std::string> byte_files() {
  constexpr const char* end = "<|endoftext|>";
  const Json byte_level{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  Json vocabulary = byte_vocabulary();
  vocabulary[end] = 256;
  const Json json{{"version", "1.0"},
                  {"truncation", nullptr},
                  {"padding", nullptr},
                  {"added_tokens", Json::array({{{"id", 256},
                                                 {"content", end},
                                                 {"single_word", false},
                                                 {"lstrip", false},
                                                 {"rstrip", false},
                                                 {"normalized", false},
                                                 {"special", true}}})},
                  {"normalizer", nullptr},
                  {"pre_tokenizer", byte_level},
                  {"post_processor", nullptr},
                  {"decoder", byte_level},
                  {"model", {{"type", "BPE"}, {"vocab", std::move(vocabulary)}, {"merges", Json::array()}}}};
  const Json config{{"tokenizer_class", "PreTrainedTokenizerFast"},
                    {"eos_token", end},
                    {"add_bos_token", false},
                    {"add_eos_token", false},
                    {"clean_up_tokenization_spaces", false},
                    {recorded, "bytes"}};
  return {{"tokenizer.json", json.dump() + "\n"}, {config_name, config.dump(2) + "\n"}};
}

/// tokenizer_config.json in the folder of `path`; an empty object if there is none, or it cannot be parsed.
Json config_beside(const std::string& path) {
  const std::string file = (fs::path(path).parent_path() / config_name).string();
  if (io::status_of(file).kind != io::PathKind::file) return Json::object();
  const Json given = io::parse_or_discard(read(file, "tokenizer"));
  return given.is_object() ? given : Json::object();
}

/// Adds chat_template.jinja and additional_chat_templates/ in the folder of `path`.
void add_chat_templates(const std::string& path, std::map<std::string, std::string>& files) {
  const fs::path folder = fs::path(path).parent_path();
  if (const std::string file = (folder / chat_template).string(); io::status_of(file).kind == io::PathKind::file)
    files[chat_template] = read(file, "chat template");
  const fs::path templates = folder / "additional_chat_templates";
  std::error_code error;
  for (const fs::path& entry : io::entries_of(templates.string(), error))
    if (entry.extension() == ".jinja" && io::status_of(entry.string()).kind == io::PathKind::file)
      files["additional_chat_templates/" + entry.filename().string()] = read(entry.string(), "chat template");
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory)
    io::cannot_read(templates.string(), "be read", error.value());
}

/// A SentencePiece model as the files of transformers, with the chat templates in its folder.
std::map<std::string, std::string> sentencepiece_files(const std::string& path) {
  const auto tokenizer = make_tokenizer(std::string(sentencepiece) + path);
  const ConfigBeside beside = read_config_beside(path, {});
  auto files = sentencepiece_export_files(path, read(path, "SentencePiece model"),
                                          {.bos = tokenizer->bos_token(),
                                           .adds_bos = !tokenizer->document_begin().empty(),
                                           .end = tokenizer->document_end(),
                                           .splits_specials = beside.split_specials.value_or(beside.file.empty())});
  const Json given = config_beside(path);
  if (const auto chat = given.find("chat_template"); chat != given.end() && !chat->is_null()) {
    Json config = Json::parse(files.at(config_name));
    config["chat_template"] = *chat;
    files[config_name] = config.dump(2) + "\n";
  }
  add_chat_templates(path, files);
  return files;
}

/// Converts a tokenizer_config.json of transformers 5 to a form that transformers 4 reads, too.
void write_for_both(Json& config) {
  Json& type = config["tokenizer_class"];
  if (!type.is_string() || type.get_ref<const std::string&>().ends_with("Backend")) type = "PreTrainedTokenizerFast";
  if (const auto extra = config.find("extra_special_tokens"); extra != config.end() && extra->is_array()) {
    if (!extra->empty() || !config.contains("additional_special_tokens")) config["additional_special_tokens"] = *extra;
    config.erase("extra_special_tokens");
  }
  // transformers writes its "no limit" as an integer of 31 digits, which a JSON number of 64 bits does not hold.
  if (const auto length = config.find("model_max_length"); length != config.end() && length->is_number_float()) {
    constexpr double most = 1e18;
    if (const double value = *length; value >= 1 && value < most)
      *length = static_cast<std::int64_t>(value);
    else
      config.erase("model_max_length");
  }
}

/// Throws DataError unless the text is a tokenizer.json: a checkpoint may name any file as its tokenizer.
void require_tokenizer(const std::string& path, const std::string& text) {
  const nlohmann::json json = io::parse_or_discard(text);
  if (!json.is_object() || !json.contains("model") || !json["model"].is_object() || !json["model"].contains("vocab"))
    throw DataError(
        fmt::format("{} is not a tokenizer.json of Hugging Face (no model.vocab), so it is not exported; "
                    "give the tokenizer by --tokenizer, or --tokenizer none",
                    path));
}

/// Writes add_bos_token and add_eos_token as the post-processor puts these tokens. A tokenizer that cannot
/// be read here keeps its own.
void write_marks(const std::string& path, Json& config) {
  try {
    const auto tokenizer = make_tokenizer(std::string(huggingface) + path);
    config["add_bos_token"] = !tokenizer->document_begin().empty();
    config["add_eos_token"] = tokenizer->puts_end();
  } catch (const DataError&) {
  }
}

/// tokenizer.json, unchanged, and the files of its folder that transformers reads.
std::map<std::string, std::string> huggingface_files(const std::string& path) {
  std::map<std::string, std::string> files{{"tokenizer.json", read(path, "tokenizer")}};
  require_tokenizer(path, files["tokenizer.json"]);
  add_chat_templates(path, files);
  for (const char* name : {"special_tokens_map.json", "added_tokens.json"}) {
    const std::string beside = (fs::path(path).parent_path() / name).string();
    if (io::status_of(beside).kind == io::PathKind::file) files[name] = read(beside, "tokenizer");
  }
  Json config = config_beside(path);
  write_for_both(config);
  write_marks(path, config);
  config[recorded] = "hf:tokenizer.json";
  files[config_name] = config.dump(2) + "\n";
  return files;
}

}  // namespace

std::map<std::string, std::string> export_files(const std::string& spec, const std::string& library) {
  if (spec.empty()) return {};
  if (spec == "bytes") return byte_files();
  const bool spm = spec.starts_with(sentencepiece);
  if (!spm && !spec.starts_with(huggingface)) unknown_spec(spec);
  const std::string path = path_of_spec(spec);
  auto files = spm ? sentencepiece_files(path) : huggingface_files(path);
  Json config = Json::parse(files.at(config_name));
  config[recorded_library] = library.empty() ? library_of(spec) : library;
  files[config_name] = config.dump(2) + "\n";
  return files;
}

std::string path_of_spec(const std::string& spec) {
  const std::string_view scheme = scheme_of(spec);
  std::string path = spec.substr(scheme.size());
  if (scheme.empty()) return path;
  const io::PathKind kind = io::status_of(path).kind;
  if (kind == io::PathKind::nothing && fs::path(path).extension() != fs::path(file_name_of(scheme)).extension())
    throw DataError(
        fmt::format("tokenizer {}: there is no such file or folder{}; nothing is downloaded: give the folder that "
                    "holds the model's {}{}",
                    spec, fs::path(path).is_relative() ? " in the working directory" : "", file_name_of(scheme),
                    huggingface::hub_download(path)));
  if (kind != io::PathKind::directory) return path;
  std::string file = (fs::path(path) / file_name_of(scheme)).string();
  if (io::status_of(file).kind == io::PathKind::file) return file;
  const std::string other = spec_of_path(path);
  throw DataError(fmt::format("tokenizer {}: the folder holds no {}; {}", spec, file_name_of(scheme),
                              other.empty() ? "give the folder of the model's tokenizer" : "give it as " + other));
}

void unknown_spec(const std::string& spec) {
  const std::string meant = spec_of_path(spec);
  throw ConfigError(
      fmt::format("tokenizer \"{}\" is not known{} Allowed are \"bytes\", \"spm:PATH\" with a SentencePiece model, and "
                  "\"hf:PATH\" with "
                  "a tokenizer.json of Hugging Face; PATH is the file or its folder",
                  spec, meant.empty() ? "." : fmt::format("; did you mean {}?", meant)));
}

std::string spec_in_directory(const std::string& directory) {
  const auto in = [&](const std::string& name) { return (fs::path(directory) / name).string(); };
  const auto has = [&](const std::string& name) { return io::status_of(in(name)).kind == io::PathKind::file; };
  if (has(config_name)) {
    const nlohmann::json config = io::parse_json(in(config_name), io::read_text(in(config_name), most_bytes));
    const std::string spec =
        config.is_object() && config.contains(recorded) && config[recorded].is_string() ? config[recorded] : "";
    const std::string name = spec.substr(scheme_of(spec).size());
    if (spec == "bytes") return spec;
    if (!scheme_of(spec).empty() && !name.empty() && fs::path(name).filename() == name && has(name))  // adjacent
      return std::string(scheme_of(spec)) + in(name);
  }
  if (has("tokenizer.json")) return std::string(huggingface) + in("tokenizer.json");
  if (has("tokenizer.model")) return std::string(sentencepiece) + in("tokenizer.model");
  return "";
}

std::string absolute_spec(const std::string& spec) {
  const std::string_view scheme = scheme_of(spec);
  return scheme.empty() ? spec : std::string(scheme) + fs::absolute(path_of_spec(spec)).lexically_normal().string();
}

std::string library_in_directory(const std::string& directory) {
  const Json config = config_beside((fs::path(directory) / config_name).string());
  const auto library = config.find(recorded_library);
  return library != config.end() && library->is_string() ? library->get<std::string>() : "";
}

std::string fingerprint(const std::string& spec) { return make_tokenizer(spec)->definition(); }

bool has_fingerprint(const std::string& spec, const std::string& saved) {
  constexpr std::size_t digits_of_earlier_builds = 16;
  if (saved.size() != digits_of_earlier_builds) return fingerprint(spec) == saved;
  return fmt::format("{:016x}", fnv1a(read(path_of_spec(spec), "tokenizer"))) == saved;
}

}  // namespace trireme::tokenizer
