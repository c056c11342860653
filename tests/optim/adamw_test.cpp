// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/adamw.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/base/philox.hpp"
#include "trireme/optim/norm.hpp"

namespace trireme::optim {
namespace {

using Floats = std::vector<float>;
using Bf16s = std::vector<c10::BFloat16>;

constexpr std::int64_t size = 100'003;  // several tiles and a ragged end
const AdamWStep example{.lr = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = {0.1, 0}, .count = 1};

Floats normals(std::uint64_t key, double scale, std::int64_t count = size) {
  Floats values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(scale * normal_at(key, i));
  return values;
}

struct State {
  Floats master = normals(1, 0.5), first = Floats(size), second = Floats(size);
  [[nodiscard]] AdamWState spans() { return {master, first, second}; }
};

/// State as it is after some steps.
State warm() {
  State state;
  state.first = normals(2, 1e-3);
  state.second = normals(3, 1e-3);
  for (float& v : state.second) v *= v;
  return state;
}

std::vector<UpdateRange> whole(bool decays = true) { return {{{0, size}, decays ? 0 : 1}}; }

bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

void expect_same_bits(const State& a, const State& b) {
  EXPECT_TRUE(same_bits(a.master, b.master));
  EXPECT_TRUE(same_bits(a.first, b.first));
  EXPECT_TRUE(same_bits(a.second, b.second));
}

/// The header's formula, one element at a time in fp32 with the fused operations written out.
void plain(const AdamWStep& step, const Floats& gradient, State& state) {
  const auto factor = static_cast<float>(step.gradient_factor), eps = static_cast<float>(step.eps);
  const auto keep = static_cast<float>(step.beta2), decay = static_cast<float>(step.lr * step.weight_decay[0]);
  const auto take1 = static_cast<float>(1 - step.beta1), take2 = static_cast<float>(1 - step.beta2);
  const auto size = static_cast<float>(step.lr / (1 - std::pow(step.beta1, static_cast<double>(step.count))));
  const auto root = static_cast<float>(1 / std::sqrt(1 - std::pow(step.beta2, static_cast<double>(step.count))));
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    volatile const float g = gradient[i] * factor, squared = g * g, kept = keep * state.second[i];
    volatile const float towards = g - state.first[i];
    state.first[i] = std::fma(take1, towards, state.first[i]);
    state.second[i] = std::fma(take2, squared, kept);
    volatile const float direction = state.first[i] / std::fma(std::sqrt(state.second[i]), root, eps);
    state.master[i] = std::fma(-size, direction, std::fma(-decay, state.master[i], state.master[i]));
  }
}

TEST(AdamW, IsThatOfLibtorchOverManySteps) {
  State ours, theirs;
  const auto tensor = [](Floats& values, std::int64_t begin, std::int64_t end) {
    return at::from_blob(values.data() + begin, {end - begin}, at::kFloat);
  };
  constexpr std::int64_t cut = 40'000;
  const std::vector<UpdateRange> ranges{{{0, cut}, 0}, {{cut, size}, 1}};
  const std::vector<double> factors{1, 0.3};
  for (std::int64_t count = 1; count <= 20; ++count) {
    Floats gradient = normals(100 + static_cast<std::uint64_t>(count), 1e-2);
    AdamWStep step = example;
    step.count = count;
    step.lr_factor = factors;
    adamw(step, ranges, std::span<const float>(gradient), ours.spans());
    for (const UpdateRange& of_group : ranges) {
      const shard::Range range = of_group.elements;
      at::Tensor before = at::full({}, static_cast<double>(count));
      at::_fused_adamw_({tensor(theirs.master, range.begin, range.end)}, {tensor(gradient, range.begin, range.end)},
                        {tensor(theirs.first, range.begin, range.end)}, {tensor(theirs.second, range.begin, range.end)},
                        {}, {before}, step.lr * factors[static_cast<std::size_t>(of_group.group)], step.beta1,
                        step.beta2, step.weight_decay[static_cast<std::size_t>(of_group.group)], step.eps, false,
                        false);
    }
  }
  for (std::size_t i = 0; i < size; ++i) {
    ASSERT_NEAR(ours.master[i], theirs.master[i], 1e-6 * std::max(0.1F, std::abs(theirs.master[i]))) << i;
    ASSERT_NEAR(ours.first[i], theirs.first[i], 1e-8) << i;
    ASSERT_NEAR(ours.second[i], theirs.second[i], 1e-5 * theirs.second[i]) << i;
  }
}

TEST(AdamW, StaysWithTheFormulaInFp64) {
  State ours;
  std::vector<double> master(ours.master.begin(), ours.master.end()), first(size), second(size);
  for (std::int64_t count = 1; count <= 20; ++count) {
    const Floats gradient = normals(200 + static_cast<std::uint64_t>(count), 1e-2);
    AdamWStep s = example;
    s.count = count;
    s.gradient_factor = 0.7;
    adamw(s, whole(), std::span<const float>(gradient), ours.spans());
    const double correct1 = 1 - std::pow(s.beta1, count), correct2 = 1 - std::pow(s.beta2, count);
    for (std::size_t i = 0; i < size; ++i) {
      const double g = gradient[i] * s.gradient_factor;
      first[i] = s.beta1 * first[i] + (1 - s.beta1) * g;
      second[i] = s.beta2 * second[i] + (1 - s.beta2) * g * g;
      master[i] -=
          s.lr * s.weight_decay[0] * master[i] + s.lr * first[i] / correct1 / (std::sqrt(second[i] / correct2) + s.eps);
    }
  }
  for (std::size_t i = 0; i < size; ++i) {
    ASSERT_NEAR(ours.master[i], master[i], 1e-6 * std::max(0.1, std::abs(master[i]))) << i;
    ASSERT_NEAR(ours.second[i], second[i], 2e-6 * second[i]) << i;
  }
}

TEST(AdamW, HasTheBitsOfAPlainLoop) {
  AdamWStep step = example;
  step.count = 9;
  step.gradient_factor = 0.37;
  const Floats gradient = normals(4, 1e-2);
  State ours = warm(), expected = warm();
  adamw(step, whole(), std::span<const float>(gradient), ours.spans());
  plain(step, gradient, expected);
  expect_same_bits(ours, expected);
}

TEST(AdamW, GivesTheSameBitsHoweverTheShardIsCut) {
  const Floats gradient = normals(4, 1e-2);
  State uncut = warm(), cut = warm();
  adamw(example, whole(), std::span<const float>(gradient), uncut.spans());
  std::vector<UpdateRange> pieces;
  for (std::int64_t begin = 0, length = 1; begin < size; begin += length, length = length * 7 % 1009 + 1) {
    pieces.push_back({{begin, std::min(size, begin + length)}, 0});
  }
  adamw(example, pieces, std::span<const float>(gradient), cut.spans());
  expect_same_bits(uncut, cut);
}

TEST(AdamW, NeitherReadsNorWritesGaps) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  Floats gradient(size, 1.0F);
  State state;
  Bf16s compute(size, c10::BFloat16(5.0F));
  gradient[500] = nan;
  state.master[500] = 0;
  const float before = state.master[70'000];
  adamw(example, std::vector<UpdateRange>{{{0, 500}, 0}, {{501, 70'000}, 0}, {{70'001, size}, 1}},
        std::span<const float>(gradient), state.spans(), compute);
  EXPECT_EQ(state.master[500], 0.0F);
  EXPECT_EQ(state.master[70'000], before);
  EXPECT_EQ(state.first[70'000], 0.0F);
  EXPECT_EQ(compute[500], c10::BFloat16(5.0F));
  EXPECT_NE(state.master[499], state.master[500]);
  EXPECT_TRUE(std::isfinite(sum_of_squares(state.master)));
}

TEST(AdamW, DecaysOnlyRangesWithDecay) {
  const Floats gradient(size);
  State state;
  const Floats before = state.master;
  adamw(example, std::vector<UpdateRange>{{{0, 1000}, 0}, {{1000, size}, 1}}, std::span<const float>(gradient),
        state.spans());
  EXPECT_FLOAT_EQ(state.master[999], before[999] * (1 - 3e-4F));
  EXPECT_EQ(state.master[1000], before[1000]);
}

TEST(AdamW, FoldsTheFactorIntoTheGradient) {
  AdamWStep step = example;
  step.gradient_factor = 0.125;
  const Floats gradient = normals(4, 1.0);
  Floats scaled = gradient;
  for (float& g : scaled) g *= 0.125F;
  State folded = warm(), before = warm();
  adamw(step, whole(), std::span<const float>(gradient), folded.spans());
  adamw(example, whole(), std::span<const float>(scaled), before.spans());
  expect_same_bits(folded, before);
}

TEST(AdamW, ReadsBf16GradientsAsTheirFp32Values) {
  Bf16s narrow;
  Floats wide;
  for (const float g : normals(4, 1e-2)) {
    narrow.emplace_back(g);
    wide.push_back(static_cast<float>(narrow.back()));
  }
  State from_narrow = warm(), from_wide = warm();
  adamw(example, whole(), std::span<const c10::BFloat16>(narrow), from_narrow.spans());
  adamw(example, whole(), std::span<const float>(wide), from_wide.spans());
  expect_same_bits(from_narrow, from_wide);
}

TEST(AdamW, WritesTheNewMastersInBf16AsLibtorchRounds) {
  const Floats gradient(size);
  State state;
  state.master[0] = 1.0F + 1.0F / 256;  // halfway: to even, down
  state.master[1] = 1.0F + 3.0F / 256;  // halfway: to even, up
  state.master[2] = std::numeric_limits<float>::infinity();
  state.master[3] = std::numeric_limits<float>::max();
  state.master[4] = -1e-40F;
  Bf16s compute(size);
  adamw(example, whole(false), std::span<const float>(gradient), state.spans(), compute);
  for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(compute[i].x, c10::BFloat16(state.master[i]).x) << i;
}

/// Whole lines of the copy are written past the caches, what is left of a range's first and last line is not.
TEST(AdamW, WritesTheCopyWhereverItBeginsAndHoweverTheShardIsCut) {
  const c10::BFloat16 untouched(5.0F);
  const Floats gradient = normals(4, 1e-2);
  const Bf16s narrow(gradient.begin(), gradient.end());
  for (const std::size_t offset : {0U, 1U, 31U}) {
    std::vector<UpdateRange> pieces;
    std::vector<bool> written(size);
    for (std::int64_t begin = 0, length = 1; begin < size; begin += length + 2, length = length * 7 % 1009 + 1) {
      const shard::Range piece{begin, std::min(size, begin + length)};
      pieces.push_back({piece, true});
      std::fill(written.begin() + piece.begin, written.begin() + piece.end, true);
    }
    const auto expect_copy = [&](const auto& gradients) {
      State state = warm();
      Bf16s room(offset + size + 40, untouched);
      const auto compute = std::span(room).subspan(offset, size);
      adamw(example, pieces, std::span(gradients), state.spans(), compute);
      for (std::size_t i = 0; i < size; ++i)
        ASSERT_EQ(compute[i].x, (written[i] ? c10::BFloat16(state.master[i]) : untouched).x) << offset << ", " << i;
      for (std::size_t i = 0; i < 40; ++i) ASSERT_EQ(room[offset + size + i].x, untouched.x);
    };
    expect_copy(gradient);
    expect_copy(narrow);
  }
}

TEST(AdamW, KeepsANanInTheBf16Copy) {
  Floats gradient(size);
  gradient[77] = std::numeric_limits<float>::quiet_NaN();
  State state;
  Bf16s compute(size);
  adamw(example, whole(), std::span<const float>(gradient), state.spans(), compute);
  EXPECT_TRUE(std::isnan(static_cast<float>(compute[77])));
  EXPECT_FALSE(std::isnan(static_cast<float>(compute[78])));
}

TEST(AdamW, TakesItsNumbersFromTheRunFile) {
  config::RunConfig config;
  config.optimizer = {.beta1 = 0.8, .beta2 = 0.99, .eps = 1e-6, .weight_decay = 0.3};
  const AdamWStep step = adamw_step(optimizer::OptimizerPlan(config), 5e-4, 12, 0.25);
  EXPECT_EQ(step.lr, 5e-4);
  EXPECT_EQ(step.beta1, 0.8);
  EXPECT_EQ(step.beta2, 0.99);
  EXPECT_EQ(step.eps, 1e-6);
  EXPECT_EQ(step.weight_decay, (std::vector{0.3, 0.0}));
  EXPECT_EQ(step.lr_factor, (std::vector{1.0, 1.0}));
  EXPECT_EQ(step.count, 12);
  EXPECT_EQ(step.gradient_factor, 0.25);
}

TEST(AdamW, ChangesNothingWithoutRanges) {
  State state = warm();
  Bf16s compute(size, c10::BFloat16(3.0F));
  const Floats gradient = normals(4, 0.1);
  adamw(example, {}, std::span<const float>(gradient), state.spans(), compute);
  expect_same_bits(state, warm());
  EXPECT_EQ(std::count(compute.begin(), compute.end(), c10::BFloat16(3.0F)), size);
}

TEST(AdamW, AcceptsAnEmptyShardWithoutRanges) {
  const std::vector<UpdateRange> beyond{{{0, 1}, 0}};
  EXPECT_NO_THROW(adamw(example, {}, std::span<const float>{}, AdamWState{}));
  EXPECT_THROW(adamw(example, beyond, std::span<const float>{}, AdamWState{}), BugError);
}

TEST(AdamW, RefusesBuffersThatDoNotFitTogether) {
  const Floats gradient(size);
  State state;
  Bf16s compute(size - 1);
  const std::span<const float> g(gradient);
  EXPECT_THROW(adamw(example, whole(), g.first(10), state.spans()), BugError);
  EXPECT_THROW(adamw(example, whole(), g, state.spans(), compute), BugError);
  EXPECT_THROW(adamw(example, std::vector<UpdateRange>{{{0, size + 1}, 0}}, g, state.spans()), BugError);
  EXPECT_THROW(adamw(example, std::vector<UpdateRange>{{{5, 9}, 0}, {{8, 12}, 0}}, g, state.spans()), BugError);
  EXPECT_THROW(adamw(example, std::vector<UpdateRange>{{{0, size}, 2}}, g, state.spans()), BugError);
  AdamWStep uncounted = example;
  uncounted.count = 0;
  EXPECT_THROW(adamw(uncounted, whole(), g, state.spans()), BugError);
}

}  // namespace
}  // namespace trireme::optim
