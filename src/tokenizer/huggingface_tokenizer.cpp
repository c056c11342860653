// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/huggingface_tokenizer.hpp"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/io/json.hpp"
#include "tokenizer/hf/pipeline.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/input_file.hpp"
#include "trireme/base/text.hpp"

namespace trireme::tokenizer {
namespace {

namespace fs = std::filesystem;

/// Those of the largest open vocabularies, a quarter of a million tokens, have 35 MB.
constexpr std::int64_t largest_file_bytes = std::int64_t{512} << 20;

/// Ends of documents by their names in open vocabularies, for files that do not name it.
constexpr std::array<std::string_view, 4> known_ends = {"<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>"};

nlohmann::json read_json(const io::InputFile& file) {
  auto json = io::parse_or_discard(file.read_whole(largest_file_bytes));
  if (!json.is_object() && file.path().ends_with(".model"))
    throw DataError(fmt::format("{} is not JSON; a SentencePiece model is given as spm:{}", file.name(), file.path()));
  if (!json.is_object())
    throw DataError(fmt::format("{} is not a JSON object, or is nested too deep; is it complete?", file.name()));
  return json;
}

/// The text of "eos_token" in a file beside tokenizer.json; empty where there is none. It may be an object.
std::string end_in(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return {};
  const nlohmann::json json = read_json(io::InputFile(path.string(), "tokenizer configuration"));
  const auto found = json.find("eos_token");
  if (found == json.end()) return {};
  if (found->is_object() && found->contains("content") && (*found)["content"].is_string()) return (*found)["content"];
  return found->is_string() ? found->get<std::string>() : std::string();
}

/// In order: what the files beside it name, the only known name among its tokens, the last id of the post-processor.
std::int32_t find_document_end(const std::string& path, const hf::Pipeline& pipeline) {
  const fs::path folder = fs::path(path).parent_path();
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const std::string end = end_in(folder / name);
    if (end.empty()) continue;
    if (const std::int32_t id = pipeline.id(end); id >= 0) return id;
    throw DataError(fmt::format("{}: eos_token \"{}\" is not a token of {}", (folder / name).string(), end, path));
  }
  if (!pipeline.frame().after.empty()) return pipeline.frame().after.back();
  std::vector<std::string> found;
  for (const std::string_view name : known_ends)
    if (pipeline.id(name) >= 0) found.emplace_back(name);
  if (found.size() == 1) return pipeline.id(found[0]);
  throw DataError(
      fmt::format("{} does not name the token that ends a document{}; put the tokenizer_config.json of the model "
                  "beside it, or write "
                  "one: {{\"eos_token\": \"...\"}}",
                  path, found.empty() ? "" : fmt::format(" ({} are among its tokens)", join(found, ", "))));
}

hf::Pipeline read_pipeline(const std::string& path) {
  const io::InputFile file(path, "tokenizer");
  const nlohmann::json json = read_json(file);
  if (!json.contains("model"))
    throw DataError(fmt::format("{} has no \"model\": it is not a tokenizer.json of Hugging Face", file.name()));
  return hf::Pipeline(hf::Node(json, path));
}

class HuggingFaceTokenizer final : public Tokenizer {
 public:
  explicit HuggingFaceTokenizer(const std::string& path)
      : pipeline_(read_pipeline(path)), document_end_(find_document_end(path, pipeline_)) {}

  std::vector<std::int32_t> encode(std::string_view text) const override { return pipeline_.encode(text); }
  std::vector<std::int32_t> encode_continuation(std::string_view text) const override { return encode(text); }
  bool encodes_parts() const override { return false; }
  std::string decode(std::span<const std::int32_t> ids) const override { return pipeline_.decode(ids); }
  std::int64_t vocab_size() const override { return pipeline_.vocab_size(); }
  std::vector<std::int32_t> document_begin() const override { return pipeline_.frame().before; }
  std::int32_t document_end() const override { return document_end_; }

 private:
  const hf::Pipeline pipeline_;
  const std::int32_t document_end_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_huggingface_tokenizer(const std::string& path) {
  return std::make_unique<HuggingFaceTokenizer>(path);
}

}  // namespace trireme::tokenizer
