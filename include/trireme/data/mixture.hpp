// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "trireme/config/run_config.hpp"

namespace trireme::data {

/// A source of a mixture.
struct MixtureSource {
  double weight = 1;
  double samples = 0;  ///< of one epoch
  double epochs = 0;   ///< times that it may be seen at most; 0: no limit
};

/// The shares of sources in a run of `samples` samples, with sum 1: in proportion to their weights, except that sources
/// which would be seen more often than their epochs have that many, and the others the rest. Throws ConfigError if all
/// sources together have too few samples.
[[nodiscard]] std::vector<double> mixture_shares(const std::vector<MixtureSource>& sources, double samples);

/// [data] of a run with `epochs` and `temperature` of its sources in their weights: weight x tokens^(1 / temperature),
/// limited by epochs over the whole run. Opens the token files of data.train, and throws as TokenFile and Dataset.
[[nodiscard]] config::Data with_mixture_weights(const config::RunConfig& config);

}  // namespace trireme::data
