// SPDX-License-Identifier: Apache-2.0
#include "trireme/model/architecture.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "model/families.hpp"
#include "trireme/base/error.hpp"

namespace trireme::model {

const NameRow& Architecture::name_of(Role role) const {
  const auto row = std::find_if(names.begin(), names.end(), [&](const NameRow& r) { return r.role == role; });
  invariant(row != names.end(), fmt::format("{} names no tensor for role {}", name, static_cast<int>(role)));
  return *row;
}

bool Architecture::expresses(Member member) const {
  return std::any_of(keys.begin(), keys.end(), [&](const KeyRow& row) { return row.member == member; });
}

std::span<const Architecture> architectures() {
  static const std::vector<Architecture> all = [] {
    std::vector<Architecture> list;
    for (const auto family : families) list.push_back(family());
    return list;
  }();
  return all;
}

const Architecture& architecture(std::string_view name) {
  const auto all = architectures();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Architecture& a) { return a.name == name; });
  if (found != all.end()) return *found;
  std::vector<std::string_view> known;
  for (const Architecture& one : all) known.push_back(one.name);
  throw ConfigError(
      fmt::format("model.architecture = \"{}\" is not known; use one of: {}", name, fmt::join(known, ", ")));
}

Decoder decoder_of(const config::Model& config) {
  Decoder decoder = architecture(config.architecture).decoder;
  if (config.attention_bias) decoder.qkv_bias = decoder.o_bias = true;
  if (config.mlp_bias) decoder.mlp_bias = true;
  return decoder;
}

std::int64_t window_of(const config::Model& config, std::int64_t layer) {
  const std::vector<std::string>& types = config.layer_types;
  if (types.empty()) return config.sliding_window;
  return types[static_cast<std::size_t>(layer) % types.size()] == config::sliding_attention ? config.sliding_window : 0;
}

bool rotates(const config::Model& config, std::int64_t layer) {
  return config.no_rope_interval == 0 || (layer + 1) % config.no_rope_interval != 0;
}

}  // namespace trireme::model
