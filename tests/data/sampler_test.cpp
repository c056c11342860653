// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/sampler.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "data/files.hpp"
#include "trireme/base/philox.hpp"

namespace trireme::data {
namespace {

std::vector<SamplePlace> take(Sampler& sampler, std::int64_t count) {
  std::vector<SamplePlace> places;
  for (std::int64_t i = 0; i < count; ++i) places.push_back(sampler.next());
  return places;
}

/// The definition (docs/numerics.md), from the beginning each time: the source of sample k.
std::int64_t plain_source(const std::vector<double>& weights, std::int64_t k) {
  double sum = 0;
  for (const double weight : weights) sum += weight;
  std::vector<std::int64_t> taken(weights.size());
  std::size_t best = 0;
  for (std::int64_t i = 0; i <= k; ++i) {
    best = 0;
    const auto debt = [&](std::size_t s) {
      const volatile double due = weights[s] / sum * static_cast<double>(i + 1);
      return due - static_cast<double>(taken[s]);
    };
    for (std::size_t s = 1; s < weights.size(); ++s) best = debt(s) > debt(best) ? s : best;
    ++taken[best];
  }
  return static_cast<std::int64_t>(best);
}

TEST(Sampler, WithoutShuffleGoesThroughTheSamplesInOrderEpochAfterEpoch) {
  Sampler sampler({{.samples = 3}}, std::nullopt);
  std::vector<std::int64_t> order;
  for (const SamplePlace& place : take(sampler, 7)) order.push_back(place.sample);
  EXPECT_EQ(order, (std::vector<std::int64_t>{0, 1, 2, 0, 1, 2, 0}));
}

TEST(Sampler, WithShuffleTakesEverySampleOncePerEpochInANewOrder) {
  Sampler sampler({{.samples = 50}}, 9);
  std::set<std::vector<std::int64_t>> orders;
  for (int epoch = 0; epoch < 4; ++epoch) {
    std::vector<std::int64_t> order;
    for (const SamplePlace& place : take(sampler, 50)) order.push_back(place.sample);
    EXPECT_EQ(std::set<std::int64_t>(order.begin(), order.end()).size(), 50);
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 4);
}

TEST(Sampler, TheSeedDecidesTheOrder) {
  Sampler a({{.samples = 50}}, 1);
  Sampler again({{.samples = 50}}, 1);
  Sampler b({{.samples = 50}}, 2);
  const auto order = take(a, 50);
  EXPECT_EQ(order, take(again, 50));
  EXPECT_NE(order, take(b, 50));
}

TEST(Sampler, MixesSourcesAsThePlainDefinitionDoes) {
  for (const std::vector<double>& weights :
       {std::vector<double>{1, 1}, {0.7, 0.3}, {0.1, 0.2, 0.3, 0.4}, {5, 1, 1e-3}, {2}}) {
    std::vector<Source> sources;
    for (const double weight : weights) sources.push_back({.samples = 10, .weight = weight});
    Sampler sampler(sources, std::nullopt);
    std::vector<std::int64_t> taken(weights.size());
    for (std::int64_t k = 0; k < 300; ++k) {
      const SamplePlace place = sampler.next();
      ASSERT_EQ(place.source, plain_source(weights, k)) << k;
      ASSERT_EQ(place.sample, taken[static_cast<std::size_t>(place.source)]++ % 10);
    }
  }
}

TEST(Sampler, KeepsEverySourceWithinOneSampleOfItsShare) {
  Sampler sampler({{.samples = 100, .weight = 0.6}, {.samples = 7, .weight = 0.25}, {.samples = 31, .weight = 0.15}},
                  3);
  sampler.skip(10000);
  const auto& taken = sampler.state().taken;
  EXPECT_NEAR(static_cast<double>(taken[0]), 6000, 1);
  EXPECT_NEAR(static_cast<double>(taken[1]), 2500, 1);
  EXPECT_NEAR(static_cast<double>(taken[2]), 1500, 1);
}

TEST(Sampler, ASourceOfWeightZeroIsNeverTaken) {
  Sampler sampler({{.samples = 5, .weight = 0}, {.samples = 5, .weight = 1}}, std::nullopt);
  for (const SamplePlace& place : take(sampler, 100)) ASSERT_EQ(place.source, 1);
}

TEST(Sampler, ContinuesFromAStateOrAPositionAsIfNeverStopped) {
  const std::vector<std::vector<Source>> lists = {
      {{.samples = 13}},
      {{.samples = 13, .weight = 0.7}, {.samples = 5, .weight = 0.2}, {.samples = 4, .weight = 0.1}}};
  for (const std::vector<Source>& sources : lists) {
    Sampler whole(sources, 4);
    (void)take(whole, 57);
    const SamplerState saved = whole.state();
    const auto expected = take(whole, 40);

    Sampler by_state(sources, 4);
    by_state.restore(saved);
    EXPECT_EQ(take(by_state, 40), expected);
    Sampler by_position(sources, 4);
    by_position.restore({.position = 57, .taken = {}});
    EXPECT_EQ(by_position.state(), saved);
    EXPECT_EQ(take(by_position, 40), expected);
  }
}

TEST(Sampler, SkippingIsTakingWithoutLooking) {
  Sampler taken({{.samples = 13, .weight = 2}, {.samples = 5, .weight = 1}}, 4);
  Sampler skipped({{.samples = 13, .weight = 2}, {.samples = 5, .weight = 1}}, 4);
  (void)take(taken, 31);
  skipped.skip(31);
  EXPECT_EQ(skipped.state(), taken.state());
}

/// The state after `count` samples, taken one by one.
SamplerState walked(const std::vector<Source>& sources, std::int64_t count) {
  Sampler sampler(sources, std::nullopt);
  sampler.skip(count);
  return sampler.state();
}

SamplerState jumped(const std::vector<Source>& sources, std::int64_t position) {
  Sampler sampler(sources, std::nullopt);
  sampler.restore({.position = position, .taken = {}});
  return sampler.state();
}

TEST(Sampler, FindsAPositionOfAMixWithoutWalkingThere) {
  std::vector<std::vector<double>> mixes = {{1, 1},    {0.7, 0.2, 0.1}, {3, 1, 1, 1},
                                            {1, 0, 1}, {5, 1, 1e-4},    {1e-5, 1, 1e-5, 1, 1e-3}};
  for (std::uint64_t mix = 0; mix < 40; ++mix) {  // weights over up to five orders of magnitude
    auto& weights = mixes.emplace_back();
    for (std::uint64_t i = 0; i < 2 + mix % 9; ++i)
      weights.push_back(std::exp(-static_cast<double>(mix % 13) * uniform_at(mix, i)));
  }
  for (std::size_t mix = 0; mix < mixes.size(); ++mix) {
    std::vector<Source> sources;
    for (const double weight : mixes[mix]) sources.push_back({.samples = 10, .weight = weight});
    for (const std::int64_t position : {5'000L, 77'777L, 300'000L + static_cast<std::int64_t>(mix) * 1'001})
      EXPECT_EQ(jumped(sources, position), walked(sources, position)) << "mix " << mix << " at " << position;
  }
}

// Just before a draw from a source of low weight, 4096 samples do not determine where a walk began.
TEST(Sampler, WalksFurtherWhereWalksHaveNotMetYet) {
  std::vector<Source> sources;
  for (std::uint64_t i = 0; i < 12; ++i) sources.push_back({.samples = 10, .weight = std::exp(-14 * uniform_at(0, i))});
  for (const std::int64_t position : {113'728, 115'505, 119'059, 129'721})
    EXPECT_EQ(jumped(sources, position), walked(sources, position)) << position;
}

TEST(Sampler, FindsAPositionBeyondAllWalking) {
  const std::vector<Source> sources = {
      {.samples = 10, .weight = 0.7}, {.samples = 10, .weight = 0.2}, {.samples = 10, .weight = 0.1}};
  for (const std::int64_t position : {std::int64_t{1'000'000'000'000}, std::int64_t{1} << 53}) {
    const SamplerState state = jumped(sources, position);
    EXPECT_EQ(std::accumulate(state.taken.begin(), state.taken.end(), std::int64_t{0}), position);
    for (std::size_t i = 0; i < sources.size(); ++i)
      EXPECT_NEAR(static_cast<double>(state.taken[i]) - sources[i].weight * static_cast<double>(position), 0, 2);
  }
  SamplerState beside = jumped(sources, 999'999'990'000);  // the walk goes through where the jump arrives
  Sampler sampler(sources, std::nullopt);
  sampler.restore(beside);
  sampler.skip(10'000);
  EXPECT_EQ(jumped(sources, 1'000'000'000'000), sampler.state());
}

TEST(Sampler, RefusesAStateOfOtherSources) {
  Sampler sampler({{.samples = 5}, {.samples = 5}}, std::nullopt);
  test::expect_parts(test::error_of(ExitCode::data,
                                    [&] {
                                      sampler.restore({.position = 6, .taken = {1, 2, 3}});
                                    }),
                     {"2 weighted sources", "had 3", "checkpoint.data"});
}

TEST(Sampler, CountsBeyondTwoToThe32Samples) {
  Sampler sampler({{.samples = 1000}}, std::nullopt);
  sampler.skip((std::int64_t{1} << 40) + 3);
  EXPECT_EQ(sampler.next().sample, ((std::int64_t{1} << 40) + 3) % 1000);
}

}  // namespace
}  // namespace trireme::data
