// SPDX-License-Identifier: Apache-2.0
#include "train/record/stragglers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <ostream>
#include <random>
#include <string>

namespace trireme::train::stragglers_test {
namespace {

using Random = std::mt19937_64;
using testing::ElementsAre;
using testing::IsEmpty;

double normal(Random& random, double sigma) { return std::normal_distribution<double>(0, sigma)(random); }
double uniform(Random& random) { return std::uniform_real_distribution<double>(0, 1)(random); }

/// Own seconds of one rank's step, of about 1. own: drawn once for each rank; common: once for each step.
struct Noise {
  std::string name;
  std::function<double(Random& random, std::int64_t step, double own, double common)> seconds;
};

std::vector<Noise> noises() {
  return {
      {"none", [](Random&, std::int64_t, double, double) { return 1.0; }},
      {"normal", [](Random& random, std::int64_t, double, double) { return 1 + normal(random, 0.05); }},
      {"uniform", [](Random& random, std::int64_t, double, double) { return 0.92 + 0.16 * uniform(random); }},
      {"log-normal", [](Random& random, std::int64_t, double, double) { return std::exp(normal(random, 0.05)); }},
      {"exponential tail", [](Random& random, std::int64_t, double,
                              double) { return 1 + std::exponential_distribution<double>(1 / 0.03)(random); }},
      {"rare long steps",  // a file system, a daemon
       [](Random& random, std::int64_t, double, double) {
         return 1 + normal(random, 0.01) + (uniform(random) < 0.05 ? 3 * uniform(random) : 0);
       }},
      {"heavy tail",  // without a mean
       [](Random& random, std::int64_t, double, double) { return 0.99 + 0.01 * std::pow(1 - uniform(random), -1.0); }},
      {"two modes",  // clocks
       [](Random& random, std::int64_t, double, double) {
         return (uniform(random) < 0.3 ? 1.08 : 1) + normal(random, 0.01);
       }},
      {"periodic",
       [](Random& random, std::int64_t step, double own, double) {
         return 1 + normal(random, 0.01) + ((step + std::llround(100 * own)) % 20 == 0 ? 1 : 0);
       }},
      {"unequal chips",
       [](Random& random, std::int64_t, double own, double) { return 1 + 0.03 * own + normal(random, 0.01); }},
      {"common drift",
       [](Random& random, std::int64_t step, double, double common) {
         return (1 + 0.5 * common + 0.001 * static_cast<double>(step)) * (1 + normal(random, 0.02));
       }},
  };
}

struct Found {
  int node;
  std::int64_t step;
  friend void PrintTo(const Found& found, std::ostream* out) { *out << "node " << found.node << " at " << found.step; }
};

/// Steps of `nodes` nodes of `per_node` ranks; `slow` takes `factor` times as long from step `from` on.
std::vector<Found> simulate(const Noise& noise, int nodes, int per_node, std::int64_t steps, std::uint64_t seed,
                            int slow = -1, double factor = 1, std::int64_t from = 0, bool whole_node = true) {
  Random random(seed);
  const auto ranks = static_cast<std::size_t>(nodes * per_node);
  std::vector<int> node_of_rank, work(ranks, 0);
  std::vector<double> own;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    node_of_rank.push_back(static_cast<int>(rank) / per_node);
    own.push_back(2 * uniform(random) - 1);
  }
  StragglerScores scores(node_of_rank, work);
  std::vector<std::vector<double>> window(ranks);
  std::vector<Found> found;
  for (std::int64_t step = 0; step < steps; ++step) {
    const double common = uniform(random);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const bool slowed = node_of_rank[rank] == slow && step >= from && (whole_node || rank % 2 == 0);
      window[rank].push_back(noise.seconds(random, step, own[rank], common) * (slowed ? factor : 1));
    }
    if (window.front().size() < StragglerScores::window_steps) continue;
    for (const Straggler& straggler : scores.add(window)) found.push_back({straggler.node, step + 1});
    for (std::vector<double>& seconds : window) seconds.clear();
  }
  return found;
}

TEST(StragglerScores, NameNoNodeInFiveHundredEvenSteps) {
  int runs = 0;
  for (const Noise& noise : noises())
    for (const auto& [nodes, per_node] : {std::pair{2, 1}, {2, 8}, {3, 1}, {4, 4}, {8, 8}, {64, 1}})
      for (std::uint64_t seed = 0; seed < 20; ++seed, ++runs)
        for (const Found& found : simulate(noise, nodes, per_node, 500, seed))
          ADD_FAILURE() << noise.name << ": node " << found.node << " of " << nodes << " at step " << found.step
                        << ", seed " << seed;
  EXPECT_GT(runs, 1000);
}

TEST(StragglerScores, NameNoNodeWhereStepsOrNodesDifferMuch) {
  const Noise steps{"steps",
                    [](Random& random, std::int64_t, double, double) { return std::exp(normal(random, 0.2)); }};
  const Noise chips{
      "chips", [](Random& random, std::int64_t, double own, double) { return 1 + 0.15 * own + normal(random, 0.01); }};
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    for (const int nodes : {2, 3, 8, 16}) EXPECT_THAT(simulate(steps, nodes, 1, 500, seed), IsEmpty()) << seed;
    EXPECT_THAT(simulate(chips, 64, 1, 100, seed), IsEmpty()) << seed;
  }
}

TEST(StragglerScores, NameANodeThatIsAFifthSlowerWithinFiftySteps) {
  for (const Noise& noise : noises())
    for (const auto& [nodes, per_node] : {std::pair{2, 1}, {2, 8}, {3, 1}, {4, 4}, {8, 8}, {64, 1}})
      for (std::uint64_t seed = 0; seed < 20; ++seed) {
        const int slow = static_cast<int>(seed) % nodes;
        const std::int64_t from = 60 + static_cast<std::int64_t>(seed) % 10;
        const std::vector<Found> found = simulate(noise, nodes, per_node, from + 50, seed, slow, 1.2, from);
        ASSERT_FALSE(found.empty()) << noise.name << ", " << nodes << " nodes, seed " << seed;
        for (const Found& one : found) EXPECT_EQ(one.node, slow) << noise.name << ", seed " << seed;
        EXPECT_GE(found.front().step, from + 20) << noise.name << ": too early to be known";
      }
}

TEST(StragglerScores, NameTheNodeOfOneSlowRank) {
  const Noise noise = noises()[1];
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const std::vector<Found> found = simulate(noise, 4, 4, 60, seed, 2, 1.3, 0, false);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found.front().node, 2);
  }
}

std::vector<std::vector<double>> equal_windows(const std::vector<double>& seconds) {
  std::vector<std::vector<double>> windows;
  for (const double one : seconds) windows.emplace_back(StragglerScores::window_steps, one);
  return windows;
}

TEST(StragglerScores, CompareRanksOfTheSameWorkOnly) {
  // Two pipeline stages, the second twice as long, on two nodes each.
  StragglerScores scores({0, 1, 2, 3}, {0, 0, 1, 1});
  for (int i = 0; i < 5; ++i) EXPECT_THAT(scores.add(equal_windows({1, 1, 2, 2})), IsEmpty());
  EXPECT_EQ(scores.highest_ratio(), 1);
  scores.add(equal_windows({1, 1, 2, 2.4}));
  scores.add(equal_windows({1, 1, 2, 2.4}));
  EXPECT_THAT(scores.current(), IsEmpty());
  const std::vector<Straggler> found = scores.add(equal_windows({1, 1, 2, 2.5}));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].node, 3);
  EXPECT_THAT(scores.current(), ElementsAre(3));
  EXPECT_EQ(
      to_text(found[0], "n4", 4, 130).substr(0, 109),
      "node n4 is a straggler: its own part of steps 91 to 130 takes 1.00, 1.20, 1.20, 1.25 times the median over 4 ");
  EXPECT_THAT(scores.add(equal_windows({1, 1, 2, 2.5})), IsEmpty()) << "once";
  scores.add(equal_windows({1, 1, 2, 2}));
  EXPECT_THAT(scores.current(), ElementsAre(3)) << "in three of four";
  scores.add(equal_windows({1, 1, 2, 2}));
  EXPECT_THAT(scores.current(), IsEmpty()) << "it has recovered";
}

TEST(StragglerScores, HaveNoOpinionOfOneNodeOrOfStepsWithoutTime) {
  StragglerScores alone({0, 0}, {0, 0});
  for (int i = 0; i < 5; ++i) EXPECT_THAT(alone.add(equal_windows({1, 9})), IsEmpty());
  EXPECT_FALSE(alone.highest_ratio());
  StragglerScores idle({0, 1}, {0, 0});
  for (int i = 0; i < 5; ++i) EXPECT_THAT(idle.add(equal_windows({0, 0})), IsEmpty());
}

}  // namespace
}  // namespace trireme::train::stragglers_test
