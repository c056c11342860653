// SPDX-License-Identifier: Apache-2.0
#include "trireme/huggingface/complete_model.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "trireme/base/error.hpp"
#include "trireme/config/rules.hpp"
#include "trireme/huggingface/huggingface.hpp"
#include "trireme/model/model.hpp"

namespace trireme::huggingface {

config::RunConfig with_derived_sizes(config::RunConfig config) {
  const model::Sizes sizes = model::build(config.model).sizes;
  config.model.kv_heads = sizes.kv_heads;
  config.model.head_dim = sizes.head_dim;
  config::check_experts(config);
  const auto& experts = sizes.decoder.experts;
  if (config.loss.balance_bias_rate > 0 && experts && !experts->choice_bias)
    throw ConfigError(fmt::format(
        "loss.balance_bias_rate = {}: the routers of model.architecture = \"{}\" have no correction bias; use "
        "loss.balance_loss, or glm4_moe or dots1",
        config.loss.balance_bias_rate, config.model.architecture));
  if (sizes.positions > 0 && config.data.seq_len > sizes.positions)
    throw ConfigError(fmt::format("data.seq_len = {} exceeds the model's {} learned positions; use shorter sequences",
                                  config.data.seq_len, sizes.positions));
  return config;
}

bool completes(const config::RunConfig& config) {
  const std::string& from = config.model.from;
  std::error_code ignored;
  return from.empty() || (is_huggingface(from) && !std::filesystem::exists(from + "/index.h5", ignored));
}

config::RunConfig complete_model(config::RunConfig config) {
  if (!config.model.from.empty()) {
    const HfConfig read = read_hf_config(config.model.from);
    warn_of_unread_keys(read, config.model.from);
    config.model = merge_model_config(config.model, read.model);
  }
  return with_derived_sizes(std::move(config));
}

}  // namespace trireme::huggingface
