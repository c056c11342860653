// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/config/run_config.hpp"

namespace trireme::config {

/// A condition on several keys.
struct Rule {
  /// Keys that the rule reads, as "section.key". A mistake is reported at the first key that is set; the rule is
  /// skipped when one of them was rejected already.
  std::vector<std::string> keys;
  /// The mistake and its remedy; nothing when the rule holds.
  std::function<std::optional<std::string>(const RunConfig&)> broken;
};

/// Every rule across keys. They look at a completed configuration.
[[nodiscard]] const std::vector<Rule>& rules();

/// Explains why the heads do not divide hidden_size without a head_dim, or kv_heads do not divide heads, with valid
/// values; nothing when they do, or when one of them is unknown.
[[nodiscard]] std::optional<std::string> misfit_of_heads(const Model& model);
[[nodiscard]] std::optional<std::string> misfit_of_kv_heads(const Model& model);

/// Upper bounds of a model's sizes, so that all counts fit 64 bits.
constexpr std::int64_t largest_vocabulary = 0x7fffffff;
constexpr std::int64_t largest_width = 1 << 24;
constexpr std::int64_t largest_count = 1 << 16;    ///< of layers and heads, and the width of one head
constexpr std::int64_t largest_experts = 1 << 14;  ///< of a layer
constexpr std::int64_t largest_length = 1 << 30;   ///< of a sequence

/// The first of a model's sizes, from a run file, a config.json or a checkpoint, that overflows; nothing when
/// none does. Sizes of 0 are not known yet.
[[nodiscard]] std::optional<std::string> beyond_counting(const Model& model);

/// Rules of models with experts, and against losses of routers and expert ranks without experts. They pass while the
/// number of experts is unknown: model.from sets it.
[[nodiscard]] std::vector<Rule> expert_rules();

/// Throws ConfigError for the first rule that config.model, which is complete, breaks.
void check_experts(const RunConfig& config);

/// Rules of 8-bit products.
[[nodiscard]] std::vector<Rule> precision_rules();

/// Rules of Muon.
[[nodiscard]] std::vector<Rule> muon_rules();

/// Fills in the defaults that depend on other keys, but not on the number of ranks.
void complete(RunConfig& config);

/// A length that can be given in tokens instead of steps.
struct InTokens {
  const char* tokens_key;
  const char* steps_key;
  std::optional<std::int64_t> tokens;
  std::int64_t steps = 0;  ///< 0: not given
};
[[nodiscard]] std::vector<InTokens> lengths_in_tokens(const RunConfig& config);

/// The largest divisor of `number` that is at most `most`; 0 if `most` < 1. Takes sqrt(number) divisions.
[[nodiscard]] std::int64_t largest_divisor(std::int64_t number, std::int64_t most);

/// "6 or 8": the divisors of `number` nearest to `wanted` from below and above.
[[nodiscard]] std::string nearest_divisors(std::int64_t number, std::int64_t wanted);

}  // namespace trireme::config
