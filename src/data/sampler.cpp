// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/sampler.hpp"

#include <fmt/format.h>

#include "trireme/base/error.hpp"
#include "trireme/base/philox.hpp"
#include "trireme/data/permutation.hpp"

namespace trireme::data {

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

std::size_t Sampler::choose_source() const {
  std::size_t best = 0;
  double best_debt = 0;
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    // volatile: a build that fuses multiply and subtract would break ties otherwise, and so order the data otherwise.
    const volatile double due = sources_[i].weight * static_cast<double>(state_.position + 1);
    const double debt = due - static_cast<double>(state_.taken[i]);
    if (i == 0 || debt > best_debt) {
      best = i;
      best_debt = debt;
    }
  }
  return best;
}

SamplePlace Sampler::next() {
  const std::size_t source = choose_source();
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
  for (; count > 0; --count) {
    ++state_.taken[choose_source()];
    ++state_.position;
  }
}

void Sampler::restore(SamplerState state) {
  if (state.taken.empty()) {
    state_ = {.position = 0, .taken = std::vector<std::int64_t>(sources_.size())};
    skip(state.position);
    return;
  }
  if (state.taken.size() != sources_.size()) {
    throw DataError(fmt::format(
        "data.train has {} weighted sources but the run to be continued had {}; restore the list, or begin the "
        "data anew with checkpoint.data = \"restart\"",
        sources_.size(), state.taken.size()));
  }
  state_ = std::move(state);
}

}  // namespace trireme::data
