// SPDX-License-Identifier: Apache-2.0
#include "trireme/tokenizer/files.hpp"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/io/json.hpp"
#include "tokenizer/sentencepiece_json.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/hash.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/base/io/input_file.hpp"

namespace trireme::tokenizer {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::int64_t most_bytes = std::int64_t{256} << 20;
constexpr std::string_view sentencepiece = "spm:";
constexpr std::string_view huggingface = "hf:";
constexpr const char* recorded = "trireme_tokenizer";  ///< key of tokenizer_config.json: the spec, its path beside it
constexpr const char* config_name = "tokenizer_config.json";

/// The part before the path, "spm:" or "hf:"; "" of a tokenizer without files.
std::string_view scheme_of(std::string_view spec) {
  for (const std::string_view scheme : {sentencepiece, huggingface})
    if (spec.starts_with(scheme)) return scheme;
  return {};
}

const char* file_name_of(std::string_view scheme) {
  return scheme == huggingface ? "tokenizer.json" : "tokenizer.model";
}

/// What `path`, given without a scheme, is called with one; "" where it is not a tokenizer.
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
                    {"clean_up_tokenization_spaces", false},
                    {recorded, "bytes"}};
  return {{"tokenizer.json", json.dump() + "\n"}, {config_name, config.dump(2) + "\n"}};
}

/// tokenizer.json as it is, and what lies beside it for transformers.
std::map<std::string, std::string> huggingface_files(const std::string& path) {
  std::map<std::string, std::string> files{{"tokenizer.json", read(path, "tokenizer")}};
  Json config = Json::object();
  for (const char* name : {"special_tokens_map.json", "chat_template.jinja", config_name}) {
    const std::string beside = (fs::path(path).parent_path() / name).string();
    if (io::status_of(beside).kind != io::PathKind::file) continue;
    const std::string text = read(beside, "tokenizer");
    if (name != config_name)
      files[name] = text;
    else if (const Json given = io::parse_or_discard(text); given.is_object())
      config = given;
  }
  if (!config.contains("tokenizer_class")) config["tokenizer_class"] = "PreTrainedTokenizerFast";
  config[recorded] = "hf:tokenizer.json";
  files[config_name] = config.dump(2) + "\n";
  return files;
}

}  // namespace

std::map<std::string, std::string> export_files(const std::string& spec) {
  if (spec.empty()) return {};
  if (spec == "bytes") return byte_files();
  const std::string path = path_of_spec(spec);
  if (spec.starts_with(sentencepiece)) return sentencepiece_export_files(path, read(path, "SentencePiece model"));
  if (spec.starts_with(huggingface)) return huggingface_files(path);
  unknown_spec(spec);
}

std::string path_of_spec(const std::string& spec) {
  const std::string_view scheme = scheme_of(spec);
  std::string path = spec.substr(scheme.size());
  if (scheme.empty()) return path;
  const io::PathKind kind = io::status_of(path).kind;
  if (kind == io::PathKind::nothing && fs::path(path).extension() != fs::path(file_name_of(scheme)).extension())
    throw DataError(
        fmt::format("tokenizer {}: there is no such file or folder{}; nothing is downloaded: give the folder that "
                    "holds the model's {}",
                    spec, fs::path(path).is_relative() ? " in the working directory" : "", file_name_of(scheme)));
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
    if (!scheme_of(spec).empty() && !name.empty() && fs::path(name).filename() == name && has(name))  // beside it
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

std::string fingerprint(const std::string& spec) {
  return scheme_of(spec).empty() ? "" : fmt::format("{:016x}", fnv1a(read(path_of_spec(spec), "tokenizer")));
}

}  // namespace trireme::tokenizer
