// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "support/jobs.hpp"
#include "trireme/config/run_config.hpp"
#include "trireme/model/architecture.hpp"

/// Runs drawn at random: models of any family, meshes, policies.
namespace trireme::test {

/// The same numbers on every rank and machine.
class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}

  template <class T>
  T of(std::initializer_list<T> choices) {
    return choices.begin()[random_() % choices.size()];
  }
  bool coin() { return random_() % 2 == 1; }
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(high - low + 1));
  }
  std::int64_t divisor_of(std::int64_t number, std::int64_t most) {
    std::vector<std::int64_t> divisors;
    for (std::int64_t d = 1; d <= std::min(number, most); ++d)
      if (number % d == 0) divisors.push_back(d);
    return divisors[random_() % divisors.size()];
  }

 private:
  std::mt19937 random_;
};

/// A run whose first weights make all of it visible. axes: draws pipelines, context and expert ranks, apart from all
/// else; null: none.
[[nodiscard]] config::RunConfig draw_run(Draw& draw, Draw* axes, const model::Architecture& family,
                                         const TokenFiles& files, int ranks, int steps);

/// Masks the targets of some runs: streaks of steps in which none counts, and single samples. Collective.
void draw_silence(Draw& draw, config::RunConfig& config, const TokenFiles& files);

/// Draws token files: with a mask, with document ends, or plain.
void draw_tokens(Draw& draw, config::Data& data, const TokenFiles& files);

/// Draws validation sets, their settings, and the best checkpoint.
void draw_validation(Draw& draw, config::RunConfig& config, const TokenFiles& files);

/// Adds what of `trireme train` a job alone does not have. files: also validated on.
void draw_program(Draw& draw, config::RunConfig& config, const TokenFiles& files, const std::string& directory,
                  std::int64_t dp);

}  // namespace trireme::test
