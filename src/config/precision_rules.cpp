// SPDX-License-Identifier: Apache-2.0
// What concerns 8-bit products and split masters only.
#include <fmt/core.h>

#include "trireme/config/names.hpp"
#include "trireme/config/rules.hpp"

namespace trireme::config {
namespace {

using Broken = std::optional<std::string>;

Broken fp8_rounds_bf16(const RunConfig& config) {
  const Precision& precision = config.precision;
  if (precision.fp8 == Fp8::none || precision.compute == DType::bf16) return std::nullopt;
  return fmt::format(
      "fp8 = \"{}\" requires precision.compute = \"bf16\", found \"{}\"; set it, or precision.fp8 = \"none\"",
      to_text(precision.fp8), to_text(precision.compute));
}

Broken skipped_products_are_of_fp8(const RunConfig& config) {
  if (config.precision.fp8 != Fp8::none || config.precision.fp8_skip.empty()) return std::nullopt;
  return "fp8_skip has no effect with precision.fp8 = \"none\"; remove it, or set precision.fp8";
}

Broken split_masters_have_a_bf16_half(const RunConfig& config) {
  const Precision& precision = config.precision;
  if (precision.masters == Masters::fp32 || precision.compute == DType::bf16) return std::nullopt;
  return fmt::format(
      "masters = \"{}\" requires precision.compute = \"bf16\", found \"{}\"; set it, or precision.masters = \"fp32\"",
      to_text(precision.masters), to_text(precision.compute));
}

}  // namespace

std::vector<Rule> precision_rules() {
  return {{{"precision.fp8", "precision.compute"}, fp8_rounds_bf16},
          {{"precision.fp8_skip", "precision.fp8"}, skipped_products_are_of_fp8},
          {{"precision.masters", "precision.compute"}, split_masters_have_a_bf16_half}};
}

}  // namespace trireme::config
