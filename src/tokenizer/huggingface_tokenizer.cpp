// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/huggingface_tokenizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/io/json.hpp"
#include "tokenizer/config_beside.hpp"
#include "tokenizer/definition.hpp"
#include "tokenizer/hf/pipeline.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/input_file.hpp"
#include "trireme/base/text.hpp"

namespace trireme::tokenizer {
namespace {

namespace fs = std::filesystem;

/// The files of the largest open vocabularies, a quarter of a million tokens, have 35 MB.
constexpr std::int64_t largest_file_bytes = std::int64_t{512} << 20;

/// Ends of documents by their names in open vocabularies, for files that do not name it.
constexpr std::array<std::string_view, 4> known_ends = {"<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>"};

nlohmann::json read_json(const io::InputFile& file) {
  auto json = io::parse_or_discard(file.read_whole(largest_file_bytes));
  if (!json.is_object() && file.path().ends_with(".tiktoken"))
    throw DataError(
        fmt::format("{} is a tiktoken file, which is not read; load its folder with transformers (AutoTokenizer) and "
                    "save_pretrained, which writes a tokenizer.json",
                    file.name()));
  if (!json.is_object() && file.path().ends_with(".model"))
    throw DataError(fmt::format("{} is not JSON; a SentencePiece model is given as spm:{}", file.name(), file.path()));
  if (!json.is_object())
    throw DataError(fmt::format("{} is not a JSON object, or is nested too deep; is it complete?", file.name()));
  return json;
}

/// Tries, in order: the eos_token of the folder's files, the last id of the post-processor, the only well-known name.
std::int32_t find_document_end(const std::string& path, const hf::Pipeline& pipeline, const ConfigBeside& beside) {
  if (!beside.eos.empty()) {
    if (const std::int32_t id = pipeline.id(beside.eos); id >= 0) return id;
    throw DataError(fmt::format("{}: eos_token \"{}\" is not a token of {}", beside.eos_file, beside.eos, path));
  }
  if (!pipeline.frame().after.empty()) return pipeline.frame().after.back();
  std::vector<std::string> found;
  for (const std::string_view name : known_ends)
    if (pipeline.id(name) >= 0) found.emplace_back(name);
  if (found.size() == 1) return pipeline.id(found[0]);
  throw DataError(
      fmt::format("{} does not name the token that ends a document{}; put the tokenizer_config.json of the model "
                  "into its folder, or write one: {{\"eos_token\": \"...\"}}",
                  path, found.empty() ? "" : fmt::format(" ({} are among its tokens)", join(found, ", "))));
}

/// The parsed tokenizer.json and the other files of its folder.
struct Files {
  std::string path;
  nlohmann::json json;
  ConfigBeside beside;
};

Files read_files(const std::string& path) {
  const io::InputFile file(path, "tokenizer");
  nlohmann::json json = read_json(file);
  if (json.contains("config") && json["config"].is_object() && json["config"].contains("pattern"))
    throw DataError(fmt::format(
        "{} is a tekken.json of Mistral, which is not read; load its folder with transformers (AutoTokenizer) "
        "and save_pretrained, which writes a tokenizer.json",
        file.name()));
  if (!json.contains("model"))
    throw DataError(fmt::format("{} has no \"model\": it is not a tokenizer.json of Hugging Face", file.name()));
  ConfigBeside beside = read_config_beside(path, json.value("added_tokens", nlohmann::json()));
  return {.path = path, .json = std::move(json), .beside = std::move(beside)};
}

/// Whether `token` is in tokenizer.json, or in a token list of another file of its folder.
bool is_known(const Files& files, const std::string& token) {
  const auto is_it = [&](const hf::AddedToken& listed) { return listed.content == token; };
  if (std::ranges::any_of(files.beside.listed, is_it) || std::ranges::any_of(files.beside.extra, is_it)) return true;
  if (const nlohmann::json added = files.json.value("added_tokens", nlohmann::json()); added.is_array())
    for (const nlohmann::json& entry : added)
      if (entry.is_object() && entry.contains("content") && entry["content"] == token) return true;
  const nlohmann::json& model = files.json["model"];
  const auto vocabulary = model.is_object() ? model.find("vocab") : model.end();
  if (!model.is_object() || vocabulary == model.end()) return false;
  if (vocabulary->is_object()) return vocabulary->contains(token);
  return std::ranges::any_of(*vocabulary, [&](const nlohmann::json& piece) {
    return piece.is_array() && !piece.empty() && piece[0] == token;
  });
}

class HuggingFaceTokenizer final : public Tokenizer {
 public:
  explicit HuggingFaceTokenizer(const Files& files)
      : pipeline_(make_pipeline(files)), document_end_(find_document_end(files.path, pipeline_, files.beside)) {
    if (const std::int32_t id = pipeline_.id(files.beside.bos); id >= 0 && !files.beside.bos.empty()) bos_ = id;
    warn_of_marks(files.beside);
    definition_ = definition_of(canonical_text(files.json, pipeline_.added_tokens()), document_begin(), document_end_);
  }

  std::vector<std::int32_t> encode(std::string_view text) const override { return pipeline_.encode(text); }
  std::vector<std::int32_t> encode_continuation(std::string_view text) const override { return encode(text); }
  bool encodes_parts() const override { return false; }
  std::string decode(std::span<const std::int32_t> ids) const override { return pipeline_.decode(ids); }
  std::string piece(std::int32_t id) const override { return pipeline_.piece(id); }
  std::int64_t vocab_size() const override { return pipeline_.vocab_size(); }
  std::vector<std::int32_t> document_begin() const override { return pipeline_.frame().before; }
  std::int32_t document_end() const override { return document_end_; }
  std::optional<std::int32_t> bos_token() const override { return bos_; }
  bool puts_end() const override { return !pipeline_.frame().after.empty(); }
  std::string definition() const override { return definition_; }
  std::vector<std::string> warnings() const override { return warnings_; }

 private:
  /// Adds the tokens of the folder's other files, except those such as pad_token that no file lists as tokens:
  /// transformers numbers them after the vocabulary, where the model has no embedding.
  hf::Pipeline make_pipeline(const Files& files) {
    const ConfigBeside& beside = files.beside;
    std::vector<hf::AddedToken> if_absent;
    for (const hf::AddedToken& token : beside.named) {
      if (is_known(files, token.content))
        if_absent.push_back(token);
      else
        warnings_.push_back(fmt::format(
            "{} lacks the token \"{}\", which another file of its folder has: transformers adds it with a new id, "
            "Trireme does not; add it to the file where it occurs in text",
            files.path, token.content));
    }
    if_absent.insert(if_absent.end(), beside.extra.begin(), beside.extra.end());
    return hf::Pipeline(hf::Node(files.json, files.path), beside.listed, if_absent);
  }

  /// transformers 5 follows the post-processor, 4 the keys of tokenizer_config.json in the classes that have them.
  void warn_of_marks(const ConfigBeside& beside) {
    const hf::Frame& frame = pipeline_.frame();
    const bool begins = bos_ && std::ranges::find(frame.before, *bos_) != frame.before.end();
    const bool ends = std::ranges::find(frame.after, document_end_) != frame.after.end();
    const auto warn = [&](const char* key, std::optional<bool> said, bool does, const std::string& token,
                          const char* where) {
      if (!said || *said == does || token.empty()) return;
      warnings_.push_back(
          fmt::format("{}: {} = {}, but the post_processor of tokenizer.json puts {}{} {} a text. Trireme and "
                      "transformers 5 follow tokenizer.json, transformers 4 may follow {}: make them agree",
                      beside.file, key, *said, does ? "" : "no ", token, where, key));
    };
    warn("add_bos_token", beside.add_bos, begins, beside.bos, "before");
    warn("add_eos_token", beside.add_eos, ends, beside.eos, "behind");
  }

  std::vector<std::string> warnings_;
  const hf::Pipeline pipeline_;
  const std::int32_t document_end_;
  std::optional<std::int32_t> bos_;
  std::string definition_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_huggingface_tokenizer(const std::string& path) {
  return std::make_unique<HuggingFaceTokenizer>(read_files(path));
}

}  // namespace trireme::tokenizer
