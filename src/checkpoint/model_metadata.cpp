// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/model_metadata.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <optional>

#include "trireme/base/error.hpp"
#include "trireme/base/text.hpp"
#include "trireme/config/model_texts.hpp"
#include "trireme/config/rules.hpp"

namespace trireme::checkpoint {
namespace {

class Reading {
 public:
  Reading(const std::string& name, const Metadata& metadata) : name_(name), values_(metadata.begin(), metadata.end()) {}

  [[nodiscard]] bool has(const std::string& key) const { return values_.contains(key); }
  [[nodiscard]] const std::string& text(const std::string& key) const {
    const auto found = values_.find(key);
    if (found == values_.end())
      throw CheckpointError(fmt::format("{}: {} is missing; use another checkpoint", name_, key));
    return found->second;
  }
  template <class Number>
  [[nodiscard]] Number number(const std::string& key) const {
    return number_in<Number>(key, text(key));
  }
  [[nodiscard]] std::vector<std::int64_t> numbers(const std::string& key) const {
    std::vector<std::int64_t> all;
    const std::string& list = text(key);
    for (std::size_t begin = 0; begin < list.size();) {
      const std::size_t end = std::min(list.find(',', begin), list.size());
      all.push_back(number_in<std::int64_t>(key, list.substr(begin, end - begin)));
      begin = end + 1;
    }
    return all;
  }
  [[noreturn]] void refuse(const std::string& key) const {
    throw CheckpointError(
        fmt::format("{}: {} = {} cannot be read; use another checkpoint", name_, key, "\"" + text(key) + "\""));
  }

 private:
  template <class Number>
  [[nodiscard]] Number number_in(const std::string& key, const std::string& value) const {
    Number number{};
    const auto [end, problem] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (problem != std::errc{} || end != value.data() + value.size()) refuse(key);
    return number;
  }

  std::string name_;
  std::map<std::string, std::string> values_;
};

/// rope_scaling as versions before 0.2 wrote it, in the form of the run file.
std::string in_todays_form(const std::string& key, const std::string& text) {
  double factor = 0, low = 0, high = 0;
  long long original = 0;
  if (key != "model.rope_scaling" ||
      std::sscanf(text.c_str(),
                  "factor %lf, low_freq_factor %lf, high_freq_factor %lf, original_max_position_embeddings %lld",
                  &factor, &low, &high, &original) != 4)
    return text;
  return fmt::format(
      "{{ rope_type = \"llama3\", factor = {}, low_freq_factor = {}, high_freq_factor = {}, "
      "original_max_position_embeddings = {} }}",
      factor, low, high, original);
}

}  // namespace

config::Model model_of(const std::string& name, const Metadata& metadata) {
  const Reading read(name, metadata);
  config::Model model;
  for (const auto& [key, text] : metadata)
    if (const auto expected = config::read_model_text(key, in_todays_form(key, text), model)) read.refuse(key);
  (void)read.text("model.architecture");
  for (const auto& [key, size] : {std::pair{"vocab_size", model.vocab_size},
                                  {"hidden_size", model.hidden_size},
                                  {"intermediate_size", model.intermediate_size},
                                  {"layers", model.layers},
                                  {"heads", model.heads},
                                  {"kv_heads", model.kv_heads},
                                  {"head_dim", model.head_dim}})
    if (size == 0) (void)read.text(std::string("model.") + key);
  if (const std::optional<std::string> wrong = config::beyond_counting(model))
    throw CheckpointError(fmt::format("{}: {}; use another checkpoint", name, *wrong));
  return model;
}

config::Model model_of(const std::string& name, const Manifest& manifest) {
  config::Model model = model_of(name, manifest.model);
  require_layers(name, model, manifest.parameters.size());
  return model;
}

void require_layers(const std::string& name, const config::Model& model, std::size_t tensors) {
  if (model.layers > static_cast<std::int64_t>(tensors))
    throw CheckpointError(fmt::format("{}: claims {} layers, but there are only {} tensors; get an intact copy", name,
                                      model.layers, tensors));
}

Metadata generation_metadata(const huggingface::HfWriteOptions& options) {
  Metadata metadata{{"max_position_embeddings", std::to_string(options.max_position_embeddings)}};
  if (options.bos_token_id) metadata.emplace_back("bos_token_id", std::to_string(*options.bos_token_id));
  if (!options.eos_token_ids.empty())
    metadata.emplace_back("eos_token_ids", fmt::format("{}", fmt::join(options.eos_token_ids, ",")));
  if (!options.kept.empty()) metadata.emplace_back("config.json", options.kept);
  if (!options.kept_generation.empty()) metadata.emplace_back("generation_config.json", options.kept_generation);
  if (!options.tokenizer.empty()) metadata.emplace_back("tokenizer", options.tokenizer);
  if (!options.tokenizer_fingerprint.empty())
    metadata.emplace_back("tokenizer_fingerprint", options.tokenizer_fingerprint);
  if (!options.tokenizer_library.empty()) metadata.emplace_back("tokenizer_library", options.tokenizer_library);
  return metadata;
}

void read_generation(const std::string& name, const Metadata& metadata, huggingface::HfWriteOptions& options) {
  const Reading read(name, metadata);
  if (read.has("max_position_embeddings"))
    options.max_position_embeddings = read.number<std::int64_t>("max_position_embeddings");
  if (read.has("bos_token_id")) options.bos_token_id = read.number<std::int64_t>("bos_token_id");
  if (read.has("eos_token_ids")) options.eos_token_ids = read.numbers("eos_token_ids");
  if (read.has("config.json")) options.kept = read.text("config.json");
  if (read.has("generation_config.json")) options.kept_generation = read.text("generation_config.json");
  if (read.has("tokenizer")) options.tokenizer = read.text("tokenizer");
  if (read.has("tokenizer_library")) options.tokenizer_library = read.text("tokenizer_library");
  if (read.has("tokenizer_fingerprint")) options.tokenizer_fingerprint = read.text("tokenizer_fingerprint");
}

}  // namespace trireme::checkpoint
