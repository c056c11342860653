// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/sampler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "data/permutation.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/philox.hpp"

namespace trireme::data {
namespace {

/// Source that gets one sample more than its share rounded down, in ties.
enum class Favour { largest_rest, first, last };

/// The sources that are taken at all, those that `favour` rounds up first in front.
std::vector<std::size_t> favoured(const std::vector<Source>& sources, double samples, Favour favour) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < sources.size(); ++i)
    if (sources[i].weight > 0) order.push_back(i);
  const auto rest = [&](std::size_t i) {
    const double share = sources[i].weight * samples;
    return share - std::floor(share);
  };
  if (favour == Favour::last) std::ranges::reverse(order);
  if (favour == Favour::largest_rest) std::ranges::stable_sort(order, std::ranges::greater{}, rest);
  return order;
}

/// A state at `position` with every source within a sample of its share.
SamplerState near_shares(const std::vector<Source>& sources, std::int64_t position, Favour favour) {
  const auto samples = static_cast<double>(position);
  SamplerState state{.position = position, .taken = {}};
  std::int64_t left = position;
  for (const Source& source : sources) {
    state.taken.push_back(static_cast<std::int64_t>(source.weight * samples));
    left -= state.taken.back();
  }
  // More left than sources, or less than none, is the rounding of the weights.
  const std::vector<std::size_t> order = favoured(sources, samples, favour);
  for (std::size_t i = 0; left != 0; i = (i + 1) % order.size()) {
    const std::int64_t step = left > 0 ? 1 : -1;
    state.taken[left > 0 ? order[i] : order[order.size() - 1 - i]] += step;
    left -= step;
  }
  return state;
}

std::size_t choose_source(const std::vector<Source>& sources, const SamplerState& state) {
  std::size_t best = 0;
  double best_debt = 0;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    // volatile: a build that fuses multiply and subtract would break ties otherwise, and so order the data otherwise.
    const volatile double due = sources[i].weight * static_cast<double>(state.position + 1);
    const double debt = due - static_cast<double>(state.taken[i]);
    if (i == 0 || debt > best_debt) {
      best = i;
      best_debt = debt;
    }
  }
  return best;
}

void walk(const std::vector<Source>& sources, SamplerState& state, std::int64_t count) {
  for (; count > 0; --count) {
    ++state.taken[choose_source(sources, state)];
    ++state.position;
  }
}

/// The state after the first `position` samples.
///
/// The rule is contractive: walks from different states at one position meet after about 1 / (the smallest weight)
/// samples and stay together ("Convex dynamics with constant input", Adler, Nowicki, Swirszcz and Tresser 2010: its
/// states tile). So three walks from distant states run over the last samples; when they have met, they equal the walk
/// from sample 0. A source whose share is below one in a hundred million is placed within a sample of it.
SamplerState state_at(const std::vector<Source>& sources, std::int64_t position) {
  constexpr std::int64_t most_work = std::int64_t{1} << 28;  // about a second
  const std::int64_t longest = most_work / static_cast<std::int64_t>(sources.size());
  for (std::int64_t walked = 1 << 12;; walked *= 8) {
    if (walked >= position) {
      SamplerState state{.position = 0, .taken = std::vector<std::int64_t>(sources.size())};
      walk(sources, state, position);
      return state;
    }
    std::array<SamplerState, 3> states;
    constexpr std::array favours{Favour::largest_rest, Favour::first, Favour::last};
    for (std::size_t i = 0; i < states.size(); ++i) {
      states[i] = near_shares(sources, position - walked, favours[i]);
      walk(sources, states[i], walked);
    }
    if ((states[0] == states[1] && states[0] == states[2]) || walked >= longest) return states[0];
  }
}

}  // namespace

Sampler::Sampler(std::vector<Source> sources, std::optional<std::uint64_t> shuffle_seed)
    : sources_(std::move(sources)) {
  invariant(!sources_.empty(), "a sampler has sources");
  double sum = 0;
  for (const Source& source : sources_) {
    invariant(source.samples > 0 && source.weight >= 0, "a source has samples and a weight");
    sum += source.weight;
  }
  invariant(sum > 0, "the weights of the sources are not all zero");
  for (Source& source : sources_) source.weight /= sum;
  state_.taken.resize(sources_.size());
  if (!shuffle_seed) return;
  for (std::size_t i = 0; i < sources_.size(); ++i)
    keys_.push_back(stream_key(*shuffle_seed, fmt::format("data.shuffle.{}", i)));
}

SamplePlace Sampler::next() {
  const std::size_t source = choose_source(sources_, state_);
  const std::int64_t count = sources_[source].samples;
  const std::int64_t taken = state_.taken[source]++;
  ++state_.position;
  const std::int64_t position = taken % count;
  const std::int64_t sample = keys_.empty() ? position : permuted(keys_[source], taken / count, position, count);
  return {.source = static_cast<std::int64_t>(source), .sample = sample};
}

void Sampler::skip(std::int64_t count) {
  if (sources_.size() == 1) {
    state_.position += count;
    state_.taken[0] += count;
    return;
  }
  walk(sources_, state_, count);
}

void Sampler::restore(SamplerState state) {
  if (state.taken.empty()) {
    state_ = sources_.size() == 1 ? SamplerState{.position = state.position, .taken = {state.position}}
                                  : state_at(sources_, state.position);
    return;
  }
  if (state.taken.size() != sources_.size()) {
    throw DataError(fmt::format(
        "data.train has {} weighted sources but the run to be continued had {}; restore the list, or restart "
        "the data with checkpoint.data = \"restart\"",
        sources_.size(), state.taken.size()));
  }
  state_ = std::move(state);
}

}  // namespace trireme::data
