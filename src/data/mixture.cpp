// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/mixture.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <variant>

#include "trireme/base/error.hpp"
#include "trireme/config/text_source.hpp"
#include "trireme/data/dataset.hpp"

namespace trireme::data {

std::vector<double> mixture_shares(const std::vector<MixtureSource>& sources, double samples) {
  std::vector<double> shares(sources.size());
  std::vector<bool> limited(sources.size());
  double free_share = 1;
  for (bool changed = true; changed;) {
    changed = false;
    double weights = 0;
    for (std::size_t i = 0; i < sources.size(); ++i)
      if (!limited[i]) weights += sources[i].weight;
    if (weights == 0) break;
    double taken = 0;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      if (limited[i]) continue;
      shares[i] = free_share * sources[i].weight / weights;
      const double most = sources[i].epochs * sources[i].samples / samples;
      if (sources[i].epochs == 0 || shares[i] <= most) continue;
      shares[i] = most;
      limited[i] = changed = true;
      taken += most;
    }
    free_share -= taken;
  }
  double sum = 0;
  for (const double share : shares) sum += share;
  constexpr double rounding = 1e-9;
  if (sum < 1 - rounding)
    throw ConfigError(
        fmt::format("data.train has {:.0f} samples within the epochs of its sources, but the run takes {:.0f} "
                    "(train.steps x batch.global); raise the epochs of a source, or set fewer steps",
                    sum * samples, samples));
  return shares;
}

config::Data with_mixture_weights(const config::RunConfig& config) {
  config::Data data = config.data;
  std::vector<config::TokenSource> files = data.train;
  std::vector<MixtureSource> sources;
  for (config::TokenSource& file : files) {
    const config::MixOptions mix = config::mix_options_of(file.path);
    file.path = config::without_mix_options(file.path);
    sources.push_back({.weight = file.weight, .samples = 0, .epochs = mix.epochs});
  }
  std::vector<PackingPlan> plans;
  if (data.packing == config::Packing::best_fit)
    plans = plan_packing(files, data.format, data.seq_len, config.model.vocab_size);
  const std::vector<Dataset> datasets =
      open_datasets(files, true, data.format, data.seq_len, config.model.vocab_size, {}, FileTail::dropped, plans);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const double temperature = config::mix_options_of(data.train[i].path).temperature;
    if (temperature > 0) sources[i].weight *= std::pow(static_cast<double>(datasets[i].tokens()), 1 / temperature);
    sources[i].samples = static_cast<double>(datasets[i].samples());
  }
  const auto samples = static_cast<double>(config.train.steps) * static_cast<double>(config.batch.global);
  const std::vector<double> shares = mixture_shares(sources, samples);
  for (std::size_t i = 0; i < files.size(); ++i) files[i].weight = shares[i];
  data.train = std::move(files);
  return data;
}

}  // namespace trireme::data
