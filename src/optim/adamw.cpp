// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/adamw.hpp"

#include <algorithm>

#include "optim/adamw_pass.hpp"
#include "optim/team_space.hpp"
#include "trireme/base/error.hpp"

namespace trireme::optim {
namespace {

/// Elements that one thread works on at a time: tiles of the shard, so that many small parameters cost what one big one
/// does.
constexpr std::int64_t tile = std::int64_t{1} << 15;

template <class Gradient>
void check(const AdamWStep& step, std::span<const DecayRange> ranges, std::span<const Gradient> gradient,
           const AdamWState& state, std::span<const c10::BFloat16> compute) {
  const std::size_t elements = gradient.size();
  invariant(state.master.size() == elements && state.first_moment.size() == elements &&
                state.second_moment.size() == elements,
            "masters and moments are as long as the gradient");
  invariant(compute.empty() || compute.size() == elements, "the compute copy is as long as the gradient");
  expect_update(step, ranges, static_cast<std::int64_t>(elements));
}

/// Calls run(begin, end, numbers) for all parts of `ranges`, tile by tile of a shard of `elements`.
template <class Run>
void for_tiles(const AdamWStep& step, std::span<const DecayRange> ranges, std::size_t elements, const Team& team,
               Run run) {
  const AdamWScalars decaying = scalars(step);
  AdamWScalars steady = decaying;
  steady.decay = 0;
  const auto run_tile = [&](std::int64_t index) {
    const std::int64_t begin = index * tile, end = begin + tile;
    auto range = std::ranges::partition_point(ranges, [=](const DecayRange& r) { return r.elements.end <= begin; });
    for (; range != ranges.end() && range->elements.begin < end; ++range) {
      run(std::max(begin, range->elements.begin), std::min(end, range->elements.end),
          range->decays ? decaying : steady);
    }
  };
  parallel(team, (static_cast<std::int64_t>(elements) + tile - 1) / tile, run_tile);
}

template <class Gradient>
void update(const AdamWStep& step, std::span<const DecayRange> ranges, std::span<const Gradient> gradient,
            const AdamWState& state, std::span<c10::BFloat16> compute, const Team& team) {
  check<Gradient>(step, ranges, gradient, state, compute);
  for_tiles(step, ranges, gradient.size(), team,
            [&](std::int64_t begin, std::int64_t end, const AdamWScalars& numbers) {
              const AdamWStreams<Gradient> streams{.gradient = gradient.data() + begin,
                                                   .master = state.master.data() + begin,
                                                   .first_moment = state.first_moment.data() + begin,
                                                   .second_moment = state.second_moment.data() + begin,
                                                   .compute = compute.empty() ? nullptr : compute.data() + begin};
              compute.empty() ? adamw_pass<false>(numbers, streams, end - begin)
                              : adamw_pass<true>(numbers, streams, end - begin);
            });
}

}  // namespace

AdamWStep adamw_step(const config::Optimizer& optimizer, double lr, std::int64_t count, double gradient_factor) {
  return {.lr = lr,
          .beta1 = optimizer.beta1,
          .beta2 = optimizer.beta2,
          .eps = optimizer.eps,
          .weight_decay = optimizer.weight_decay,
          .count = count,
          .gradient_factor = gradient_factor};
}

void adamw(const AdamWStep& step, std::span<const DecayRange> ranges, std::span<const float> gradient, AdamWState state,
           std::span<c10::BFloat16> compute, const Team& team) {
  update(step, ranges, gradient, state, compute, team);
}

void adamw(const AdamWStep& step, std::span<const DecayRange> ranges, std::span<const c10::BFloat16> gradient,
           AdamWState state, std::span<c10::BFloat16> compute, const Team& team) {
  update(step, ranges, gradient, state, compute, team);
}

void adamw(const AdamWStep& step, std::span<const DecayRange> ranges, std::span<const float> gradient,
           SplitAdamWState state, const Team& team) {
  const std::size_t elements = gradient.size();
  invariant(state.gathered.size() == elements && state.remainder.size() == elements &&
                state.first_moment.size() == elements && state.second_moment.size() == elements,
            "both halves of masters, and moments, are as long as the gradient");
  expect_update(step, ranges, static_cast<std::int64_t>(elements));
  for_tiles(step, ranges, elements, team, [&](std::int64_t begin, std::int64_t end, const AdamWScalars& numbers) {
    const SplitStreams streams{.gradient = gradient.data() + begin,
                               .first_moment = state.first_moment.data() + begin,
                               .second_moment = state.second_moment.data() + begin,
                               .compute = &state.gathered.data()[begin].x,
                               .remainder = state.remainder.data() + begin};
    adamw_pass(numbers, streams, end - begin);
  });
}

}  // namespace trireme::optim
