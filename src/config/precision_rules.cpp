// SPDX-License-Identifier: Apache-2.0
// Rules of 8-bit products and split masters.
#include <fmt/core.h>

#include "trireme/config/names.hpp"
#include "trireme/config/rules.hpp"

namespace trireme::config {
namespace {

using Broken = std::optional<std::string>;

/// Broken if `chosen` is a mode of `key` that rounds bf16 without bf16 compute; off: the mode without rounding.
template <class Choice>
Broken requires_bf16(const Precision& precision, const char* key, Choice chosen, Choice off) {
  if (chosen == off || precision.compute == DType::bf16) return std::nullopt;
  return fmt::format(
      "{0} = \"{1}\" requires precision.compute = \"bf16\", found \"{2}\"; set it, or precision.{0} = \"{3}\"", key,
      to_text(chosen), to_text(precision.compute), to_text(off));
}

Broken fp8_rounds_bf16(const RunConfig& config) {
  return requires_bf16(config.precision, "fp8", config.precision.fp8, Fp8::none);
}

Broken skipped_products_are_of_fp8(const RunConfig& config) {
  if (config.precision.fp8 != Fp8::none || config.precision.fp8_skip.empty()) return std::nullopt;
  return "fp8_skip has no effect with precision.fp8 = \"none\"; remove it, or set precision.fp8";
}

Broken split_masters_have_a_bf16_half(const RunConfig& config) {
  return requires_bf16(config.precision, "masters", config.precision.masters, Masters::fp32);
}

}  // namespace

std::vector<Rule> precision_rules() {
  return {{{"precision.fp8", "precision.compute"}, fp8_rounds_bf16},
          {{"precision.fp8_skip", "precision.fp8"}, skipped_products_are_of_fp8},
          {{"precision.masters", "precision.compute"}, split_masters_have_a_bf16_half}};
}

}  // namespace trireme::config
