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
#include "trireme/config/rules.hpp"

namespace trireme::checkpoint {
namespace {

constexpr std::int64_t most_model_size = std::int64_t{1} << 31;

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
  /// A size of a model: products of two fit into 64 bits.
  [[nodiscard]] std::int64_t size(const std::string& key) const {
    const auto value = number<std::int64_t>(key);
    if (value < 1 || value > most_model_size) refuse(key);
    return value;
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

config::RopeScaling rope_scaling_of(const Reading& metadata, const std::string& key) {
  double factor = 0, low = 0, high = 0;
  long long original = 0;
  if (std::sscanf(metadata.text(key).c_str(),
                  "factor %lf, low_freq_factor %lf, high_freq_factor %lf, original_max_position_embeddings %lld",
                  &factor, &low, &high, &original) != 4)
    metadata.refuse(key);
  return {
      .factor = factor, .low_freq_factor = low, .high_freq_factor = high, .original_max_position_embeddings = original};
}

}  // namespace

config::Model model_of(const std::string& name, const Metadata& metadata) {
  const Reading read(name, metadata);
  config::Model model;
  model.architecture = read.text("model.architecture");
  model.vocab_size = read.size("model.vocab_size");
  model.hidden_size = read.size("model.hidden_size");
  model.intermediate_size = read.size("model.intermediate_size");
  model.layers = read.size("model.layers");
  model.heads = read.size("model.heads");
  model.kv_heads = read.size("model.kv_heads");
  model.head_dim = read.size("model.head_dim");
  model.norm_eps = read.number<double>("model.norm_eps");
  model.rope_theta = read.number<double>("model.rope_theta");
  model.tie_embeddings = read.text("model.tie_embeddings") == "true";
  if (read.has("model.positions")) model.positions = read.size("model.positions");
  if (read.has("model.rope_scaling")) model.rope_scaling = rope_scaling_of(read, "model.rope_scaling");
  std::optional<std::string> wrong = config::beyond_counting(model);
  if (std::min({model.vocab_size, model.hidden_size, model.layers, model.heads, model.kv_heads, model.head_dim}) < 1)
    wrong = "a size of the model is 0";
  if (wrong) throw CheckpointError(fmt::format("{}: {}; use another checkpoint", name, *wrong));
  return model;
}

config::Model model_of(const std::string& name, const Manifest& manifest) {
  config::Model model = model_of(name, manifest.model);
  require_layers(name, model, manifest.parameters.size());
  return model;
}

void require_layers(const std::string& name, const config::Model& model, std::size_t tensors) {
  if (model.layers > static_cast<std::int64_t>(tensors))
    throw CheckpointError(fmt::format("{}: claims {} layers, but there are only {} tensors; get a sound copy", name,
                                      model.layers, tensors));
}

Metadata generation_metadata(const huggingface::HfWriteOptions& options) {
  Metadata metadata{{"max_position_embeddings", std::to_string(options.max_position_embeddings)}};
  if (options.bos_token_id) metadata.emplace_back("bos_token_id", std::to_string(*options.bos_token_id));
  if (!options.eos_token_ids.empty())
    metadata.emplace_back("eos_token_ids", fmt::format("{}", fmt::join(options.eos_token_ids, ",")));
  return metadata;
}

void read_generation(const std::string& name, const Metadata& metadata, huggingface::HfWriteOptions& options) {
  const Reading read(name, metadata);
  if (read.has("max_position_embeddings"))
    options.max_position_embeddings = read.number<std::int64_t>("max_position_embeddings");
  if (read.has("bos_token_id")) options.bos_token_id = read.number<std::int64_t>("bos_token_id");
  if (read.has("eos_token_ids")) options.eos_token_ids = read.numbers("eos_token_ids");
}

}  // namespace trireme::checkpoint
