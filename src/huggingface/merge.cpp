// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <string_view>

#include "trireme/base/error.hpp"
#include "trireme/huggingface/huggingface.hpp"

namespace trireme::huggingface {

namespace {

/// The value of two sources; `not_given` is what the run file holds when it says nothing.
template <class Value>
Value merged(std::string_view key, const Value& from_file, const Value& from_hf, const Value& not_given,
             Mistakes& mistakes) {
  if (from_file != not_given && from_file != from_hf) {
    mistakes.add(fmt::format("model.{} = {}, but the weights of model.from have {}; leave the key out or give the same",
                             key, from_file, from_hf));
  }
  return from_hf;
}

std::string text(const std::optional<config::RopeScaling>& scaling) {
  if (!scaling) return "none";
  return fmt::format(
      "{{ factor = {}, low_freq_factor = {}, high_freq_factor = {}, original_max_position_embeddings = {} }}",
      scaling->factor, scaling->low_freq_factor, scaling->high_freq_factor, scaling->original_max_position_embeddings);
}

}  // namespace

config::Model merge_model_config(const config::Model& from_file, const config::Model& from_hf) {
  const config::Model defaults;
  Mistakes mistakes;
  config::Model model = from_file;
  const auto take = [&](std::string_view key, auto config::Model::*member) {
    model.*member = merged(key, from_file.*member, from_hf.*member, defaults.*member, mistakes);
  };
  take("architecture", &config::Model::architecture);
  take("vocab_size", &config::Model::vocab_size);
  take("hidden_size", &config::Model::hidden_size);
  take("intermediate_size", &config::Model::intermediate_size);
  take("layers", &config::Model::layers);
  take("heads", &config::Model::heads);
  take("kv_heads", &config::Model::kv_heads);
  take("head_dim", &config::Model::head_dim);
  take("positions", &config::Model::positions);
  take("norm_eps", &config::Model::norm_eps);
  take("rope_theta", &config::Model::rope_theta);
  take("tie_embeddings", &config::Model::tie_embeddings);
  merged("rope_scaling", text(from_file.rope_scaling), text(from_hf.rope_scaling), text(std::nullopt), mistakes);
  model.rope_scaling = from_hf.rope_scaling;
  mistakes.raise("the run file and the weights that it starts from describe different models");
  return model;
}

}  // namespace trireme::huggingface
