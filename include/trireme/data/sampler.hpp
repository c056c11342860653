// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace trireme::data {

/// One source of samples and its weight.
struct Source {
  std::int64_t samples = 0;
  double weight = 1.0;
};

/// Position of a run in its data: sufficient for a restart on any mesh.
struct SamplerState {
  std::int64_t position = 0;        ///< samples of the run consumed so far
  std::vector<std::int64_t> taken;  ///< [sources] samples taken from each; empty: computed from `position`
  friend bool operator==(const SamplerState&, const SamplerState&) = default;
};

/// A sample in its source.
struct SamplePlace {
  std::int64_t source = 0;
  std::int64_t sample = 0;
  friend bool operator==(const SamplePlace&, const SamplePlace&) = default;
};

/// The order of a run's samples, one after the other, the same on every rank and every mesh.
///
/// The source of sample k is argmax_i of w_i * (k + 1) - taken_i (ties: the lowest), w being the weights scaled to
/// sum 1. Its c-th sample taken from a source of N is position c mod N of epoch c div N: itself without shuffle, else a
/// keyed permutation, new each epoch.
class Sampler {
 public:
  /// shuffle_seed: absent keeps the files' order.
  Sampler(std::vector<Source> sources, std::optional<std::uint64_t> shuffle_seed);

  /// The next sample of the run.
  [[nodiscard]] SamplePlace next();
  /// Passes over `count` samples: O(1) with one source, about 10 ns a sample and source otherwise. From the first
  /// sample `restore` with a position is the short way.
  void skip(std::int64_t count);

  [[nodiscard]] const SamplerState& state() const noexcept { return state_; }
  /// Continues from `state`; without `taken` it is computed in about 1 / (the smallest weight) steps, for any position.
  /// Throws DataError for another number of sources.
  void restore(SamplerState state);

 private:
  std::vector<Source> sources_;      ///< weights sum to 1
  std::vector<std::uint64_t> keys_;  ///< [sources] of the permutations; empty without shuffle
  SamplerState state_;
};

}  // namespace trireme::data
