// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/adamw.hpp"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>
#include <vector>

#include "optim/adamw_pass.hpp"
#include "optim/team_space.hpp"
#include "trireme/base/error.hpp"

namespace trireme::optim {
namespace {

/// Elements that one thread processes at a time: tiles of the shard, so that many small parameters take the time of one
/// big one.
constexpr std::int64_t tile = std::int64_t{1} << 15;
/// Elements whose random words are in the L1 cache at a time.
constexpr std::int64_t words_at_once = 1024;
using Words = std::array<std::uint32_t, words_at_once>;

/// Calls run(begin, end, numbers, range) for all parts of `ranges`, tile by tile of a shard of `elements`.
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
          numbers[static_cast<std::size_t>(range->group)], *range);
    }
  };
  parallel(team, (static_cast<std::int64_t>(elements) + tile - 1) / tile, run_tile);
}

void expect_second_moments(std::span<const UpdateRange> ranges, std::size_t elements) {
  for (const UpdateRange& range : ranges)
    invariant(range.elements.begin + range.second_shift >= 0 &&
                  range.elements.end + range.second_shift <= static_cast<std::int64_t>(elements),
              "every range has second moments");
}

/// Random words of elements [first, first + count) of a whole parameter.
void fill_words(const UpdateRange& range, std::int64_t update, std::int64_t first, std::int64_t count,
                std::uint32_t* words) {
  const auto fill_one = [&](std::int64_t i) {
    words[i] = rounding_words(range.key, (first + i) / 4, update)[static_cast<std::size_t>((first + i) % 4)];
  };
  std::int64_t i = 0;
  for (; i < count && (first + i) % 4 != 0; ++i) fill_one(i);
  const std::int64_t fours = (count - i) / 4, four = (first + i) / 4;
  std::uint32_t* const aligned = words + i;
#pragma GCC ivdep
  for (std::int64_t f = 0; f < fours; ++f) {
    const std::array<std::uint32_t, 4> word = rounding_words(range.key, four + f, update);
    for (std::size_t w = 0; w < word.size(); ++w) aligned[4 * f + static_cast<std::int64_t>(w)] = word[w];
  }
  for (i += 4 * fours; i < count; ++i) fill_one(i);
}

/// Random words of elements [begin, end) of the shard, which are in `range`.
void fill_words_of(const UpdateRange& range, std::int64_t update, std::int64_t begin, std::int64_t end, Words& words) {
  const shard::Hyperslab& whole = range.whole;
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t row = (at - range.elements.begin) / whole.length,
                       column = (at - range.elements.begin) % whole.length;
    const std::int64_t count = std::min(end - at, whole.length - column);
    fill_words(range, update, whole.first + row * whole.stride + column, count, words.data() + (at - begin));
    at += count;
  }
}

/// Calls pass(begin, end, numbers, moments of element `begin`) for all parts of `ranges`.
template <class Moment, class Pass>
void for_moments(const AdamWStep& step, std::span<const UpdateRange> ranges, std::span<Moment> m, std::span<Moment> v,
                 const Team& team, Pass pass) {
  for_tiles(
      step, ranges, m.size(), team,
      [&](std::int64_t begin, std::int64_t end, const AdamWScalars& numbers, const UpdateRange& range) {
        if constexpr (std::is_same_v<Moment, float>) {
          pass(begin, end, numbers, MomentStreams<float>{m.data() + begin, v.data() + begin + range.second_shift});
        } else {
          Words words;
          for (std::int64_t at = begin; at < end; at += words_at_once) {
            const std::int64_t until = std::min(end, at + words_at_once);
            fill_words_of(range, step.count, at, until, words);
            pass(at, until, numbers,
                 MomentStreams<Moment>{m.data() + at, v.data() + at + range.second_shift, words.data()});
          }
        }
      });
}

template <class Gradient, class Moment>
void update(const AdamWStep& step, std::span<const UpdateRange> ranges, std::span<const Gradient> gradient,
            const AdamWStateIn<Moment>& state, std::span<c10::BFloat16> compute, const Team& team) {
  const std::size_t elements = gradient.size();
  invariant(state.master.size() == elements && state.m.size() == elements,
            "masters and first moments are as long as the gradient");
  expect_second_moments(ranges, state.v.size());
  invariant(compute.empty() || compute.size() == elements, "the compute copy is as long as the gradient");
  expect_update(step, ranges, static_cast<std::int64_t>(elements), !std::is_same_v<Moment, float>);
  for_moments(
      step, ranges, state.m, state.v, team,
      [&](std::int64_t begin, std::int64_t end, const AdamWScalars& numbers, const MomentStreams<Moment>& moments) {
        const AdamWStreams<Gradient, Moment> streams{.gradient = gradient.data() + begin,
                                                     .master = state.master.data() + begin,
                                                     .moments = moments,
                                                     .compute = compute.empty() ? nullptr : compute.data() + begin};
        compute.empty() ? adamw_pass<false>(numbers, streams, end - begin)
                        : adamw_pass<true>(numbers, streams, end - begin);
      });
}

template <class Moment>
void update(const AdamWStep& step, std::span<const UpdateRange> ranges, std::span<const float> gradient,
            const SplitAdamWStateIn<Moment>& state, const Team& team) {
  const std::size_t elements = gradient.size();
  invariant(state.gathered.size() == elements && state.remainder.size() == elements && state.m.size() == elements,
            "both halves of masters, and first moments, are as long as the gradient");
  expect_second_moments(ranges, state.v.size());
  expect_update(step, ranges, static_cast<std::int64_t>(elements), !std::is_same_v<Moment, float>);
  for_moments(
      step, ranges, state.m, state.v, team,
      [&](std::int64_t begin, std::int64_t end, const AdamWScalars& numbers, const MomentStreams<Moment>& moments) {
        const SplitStreams<Moment> streams{.gradient = gradient.data() + begin,
                                           .moments = moments,
                                           .compute = &state.gathered.data()[begin].x,
                                           .remainder = state.remainder.data() + begin};
        adamw_pass(numbers, streams, end - begin);
      });
}

}  // namespace

AdamWStep adamw_step(const optimizer::OptimizerPlan& plan, double lr, std::int64_t count, double gradient_factor) {
  const config::Optimizer& optimizer = plan.settings();
  std::vector<double> weight_decay, lr_factor;
  for (const optimizer::Group& group : plan.groups()) {
    weight_decay.push_back(group.weight_decay);
    lr_factor.push_back(group.lr);
  }
  return {.lr = lr,
          .beta1 = optimizer.beta1,
          .beta2 = optimizer.beta2,
          .eps = optimizer.eps,
          .weight_decay = std::move(weight_decay),
          .lr_factor = std::move(lr_factor),
          .count = count,
          .gradient_factor = gradient_factor};
}

Bytes adamw_traffic(std::int64_t elements, Bytes states, bool rounds) {
  const std::int64_t gradient_and_masters = 4 + 2 * 4, copy = rounds ? 2 : 0;
  return {elements * (gradient_and_masters + copy) + 2 * states.value};
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
           RoundedAdamWState state, std::span<c10::BFloat16> compute, const Team& team) {
  update(step, ranges, gradient, state, compute, team);
}

void adamw(const AdamWStep& step, std::span<const UpdateRange> ranges, std::span<const float> gradient,
           SplitAdamWState state, const Team& team) {
  update(step, ranges, gradient, state, team);
}

void adamw(const AdamWStep& step, std::span<const UpdateRange> ranges, std::span<const float> gradient,
           RoundedSplitAdamWState state, const Team& team) {
  update(step, ranges, gradient, state, team);
}

}  // namespace trireme::optim
