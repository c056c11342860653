// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trireme/model/model.hpp"

/// What the architectures are built of.
namespace trireme::model {

/// The sizes that the run file gives, completed. Throws ConfigError listing what is missing, does not fit together, or
/// has no meaning for an architecture of this form.
[[nodiscard]] Sizes completed_sizes(const config::Model& config, const Form& form);

/// Standard deviations of first values.
struct Stds {
  double plain;
  double residual;  ///< of the projections that write to the residual stream
};

inline Stds stds_of(const config::Model& config, const Sizes& sizes) {
  const double depth = std::sqrt(2.0 * static_cast<double>(sizes.layers));
  const double scale = config.init == config::Init::depth_scaled ? 1.0 / depth : 1.0;
  return {.plain = config.init_std, .residual = config.init_std * scale};
}

inline Parameter ones(std::string name, std::int64_t size) {
  return {.name = std::move(name), .shape = {size}, .filling = Filling::ones, .std = 0};
}

inline Parameter zeros(std::string name, std::int64_t size) {
  return {.name = std::move(name), .shape = {size}, .filling = Filling::zeros, .std = 0};
}

inline Parameter matrix(std::string name, std::int64_t out, std::int64_t in, double std) {
  return {.name = std::move(name), .shape = {out, in}, .filling = Filling::normal, .std = std};
}

inline std::vector<ParamRef> refs(ParamBlock block, int first, int count) {
  std::vector<ParamRef> list;
  for (int i = first; i < first + count; ++i) list.push_back({.block = block, .index = i});
  return list;
}

}  // namespace trireme::model
