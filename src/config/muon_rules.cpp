// SPDX-License-Identifier: Apache-2.0
// Rules of Muon.
#include <fmt/core.h>

#include <array>
#include <utility>

#include "trireme/config/names.hpp"
#include "trireme/config/rules.hpp"

namespace trireme::config {
namespace {

using Broken = std::optional<std::string>;

bool is_muon(const RunConfig& config) { return config.optimizer.name == OptimizerName::muon; }

Broken keys_of_muon_have_an_effect(const RunConfig& config) {
  if (is_muon(config)) return std::nullopt;
  const Optimizer& now = config.optimizer;
  const Optimizer defaults;
  const std::array keys{
      std::pair{now.momentum != defaults.momentum, "momentum"},
      std::pair{now.nesterov != defaults.nesterov, "nesterov"},
      std::pair{now.scale != defaults.scale, "scale"},
      std::pair{now.newton_schulz != defaults.newton_schulz, "newton_schulz"},
      std::pair{now.newton_schulz_precision != defaults.newton_schulz_precision, "newton_schulz_precision"},
      std::pair{now.adamw != defaults.adamw, "adamw"},
      std::pair{now.window_bytes != defaults.window_bytes, "window_bytes"}};
  for (const auto& [set, key] : keys)
    if (set)
      return fmt::format(
          "optimizer.{} has no effect with optimizer.name = \"adamw\"; remove it, or set optimizer.name = \"muon\"",
          key);
  return std::nullopt;
}

Broken momentum_is_fp32(const RunConfig& config) {
  if (!is_muon(config) || config.precision.moments == DType::fp32) return std::nullopt;
  return fmt::format(
      "optimizer.name = \"muon\" keeps its momentum in fp32, found precision.moments = \"{}\"; set "
      "precision.moments = \"fp32\"",
      to_text(config.precision.moments));
}

}  // namespace

std::vector<Rule> muon_rules() {
  return {{{"optimizer.name", "optimizer.momentum", "optimizer.nesterov", "optimizer.scale", "optimizer.newton_schulz",
            "optimizer.newton_schulz_precision", "optimizer.adamw", "optimizer.window_bytes"},
           keys_of_muon_have_an_effect},
          {{"optimizer.name", "precision.moments"}, momentum_is_fp32}};
}

}  // namespace trireme::config
