// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/adamw.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "optim/adamw_pass.hpp"
#include "optim/team_space.hpp"
#include "trireme/base/error.hpp"

namespace trireme::optim {
namespace {

/// Elements that one thread works on at a time: tiles of the shard, so that many small parameters cost what one big one
/// does.
constexpr std::int64_t tile = std::int64_t{1} << 15;

template <class Gradient>
void check(const AdamWStep& step, std::span<const UpdateRange> ranges, std::span<const Gradient> gradient,
           const AdamWState& state, std::span<const c10::BFloat16> compute) {
  const std::size_t elements = gradient.size();
  invariant(state.master.size() == elements && state.m.size() == elements && state.v.size() == elements,
            "masters and moments are as long as the gradient");
  invariant(compute.empty() || compute.size() == elements, "the compute copy is as long as the gradient");
  expect_update(step, ranges, static_cast<std::int64_t>(elements));
}

/// Calls run(begin, end, numbers) for all parts of `ranges`, tile by tile of a shard of `elements`.
template <class Run>
void for_tiles(const AdamWStep& step, std::span<const UpdateRange> ranges, std::size_t elements, const Team& team,
               Run run) {
  std::vector<AdamWScalars> numbers;  // by group
  for (std::size_t g = 0; g < step.weight_decay.size(); ++g) numbers.push_back(scalars(step, static_cast<int>(g)));
  const auto run_tile = [&](std::int64_t index) {
    const std::int64_t begin = index * tile, end = begin + tile;
    auto range = std::ranges::partition_point(ranges, [=](const UpdateRange& r) { return r.elements.end <= begin; });
    for (; range != ranges.end() && range->elements.begin < end; ++range) {
      run(std::max(begin, range->elements.begin), std::min(end, range->elements.end),
          numbers[static_cast<std::size_t>(range->group)]);
    }
  };
  parallel(team, (static_cast<std::int64_t>(elements) + tile - 1) / tile, run_tile);
}

template <class Gradient>
void update(const AdamWStep& step, std::span<const UpdateRange> ranges, std::span<const Gradient> gradient,
            const AdamWState& state, std::span<c10::BFloat16> compute, const Team& team) {
  check<Gradient>(step, ranges, gradient, state, compute);
  for_tiles(step, ranges, gradient.size(), team,
            [&](std::int64_t begin, std::int64_t end, const AdamWScalars& numbers) {
              const AdamWStreams<Gradient> streams{.gradient = gradient.data() + begin,
                                                   .master = state.master.data() + begin,
                                                   .m = state.m.data() + begin,
                                                   .v = state.v.data() + begin,
                                                   .compute = compute.empty() ? nullptr : compute.data() + begin};
              compute.empty() ? adamw_pass<false>(numbers, streams, end - begin)
                              : adamw_pass<true>(numbers, streams, end - begin);
            });
}

}  // namespace

AdamWStep adamw_step(const optimizer::OptimizerPlan& plan, double lr, std::int64_t count, double gradient_factor) {
  const config::Optimizer& optimizer = plan.settings();
  std::vector<double> weight_decay;
  for (const optimizer::Group& group : plan.groups()) weight_decay.push_back(group.weight_decay);
  return {.lr = lr,
          .beta1 = optimizer.beta1,
          .beta2 = optimizer.beta2,
          .eps = optimizer.eps,
          .weight_decay = std::move(weight_decay),
          .count = count,
          .gradient_factor = gradient_factor};
}

Bytes adamw_traffic(const optimizer::OptimizerPlan& plan, std::int64_t elements, bool rounds) {
  const std::int64_t gradient_and_masters = 4 + 2 * 4, copy = rounds ? 2 : 0;
  return {elements * (gradient_and_masters + copy) + 2 * plan.state_bytes(elements).value};
}

void adamw(const AdamWStep& step, std::span<const UpdateRange> ranges, std::span<const float> gradient,
           AdamWState state, std::span<c10::BFloat16> compute, const Team& team) {
  update(step, ranges, gradient, state, compute, team);
}

void adamw(const AdamWStep& step, std::span<const UpdateRange> ranges, std::span<const c10::BFloat16> gradient,
           AdamWState state, std::span<c10::BFloat16> compute, const Team& team) {
  update(step, ranges, gradient, state, compute, team);
}

void adamw(const AdamWStep& step, std::span<const UpdateRange> ranges, std::span<const float> gradient,
           SplitAdamWState state, const Team& team) {
  const std::size_t elements = gradient.size();
  invariant(state.gathered.size() == elements && state.remainder.size() == elements && state.m.size() == elements &&
                state.v.size() == elements,
            "both halves of masters, and moments, are as long as the gradient");
  expect_update(step, ranges, static_cast<std::int64_t>(elements));
  for_tiles(step, ranges, elements, team, [&](std::int64_t begin, std::int64_t end, const AdamWScalars& numbers) {
    const SplitStreams streams{.gradient = gradient.data() + begin,
                               .m = state.m.data() + begin,
                               .v = state.v.data() + begin,
                               .compute = &state.gathered.data()[begin].x,
                               .remainder = state.remainder.data() + begin};
    adamw_pass(numbers, streams, end - begin);
  });
}

}  // namespace trireme::optim
