// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/mixture.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "data/files.hpp"
#include "trireme/data/sampler.hpp"

namespace trireme::data::mixture_test {
namespace {

using Shares = std::vector<double>;

void expect_near(const Shares& found, const Shares& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-12) << i;
}

TEST(MixtureShares, AreTheWeightsWithoutLimits) {
  expect_near(mixture_shares({{.weight = 3, .samples = 10}, {.weight = 1, .samples = 10}}, 1000), {0.75, 0.25});
}

TEST(MixtureShares, OfALimitedSourceGoToTheOthersInProportion) {
  // 1000 samples: the first may be seen twice, 100 samples; the others have 3 : 1 of the rest.
  expect_near(mixture_shares({{.weight = 4, .samples = 50, .epochs = 2},
                              {.weight = 3, .samples = 400, .epochs = 4},
                              {.weight = 1, .samples = 400}},
                             1000),
              {0.1, 0.675, 0.225});
  // The rest of the first pushes the second over its own limit.
  expect_near(mixture_shares({{.weight = 8, .samples = 50, .epochs = 2},
                              {.weight = 1, .samples = 200, .epochs = 1},
                              {.weight = 1, .samples = 400}},
                             1000),
              {0.1, 0.2, 0.7});
}

TEST(MixtureShares, KeepEverySourceWithinItsEpochs) {
  const std::vector<MixtureSource> mix{{.weight = 5, .samples = 70, .epochs = 3},
                                       {.weight = 2, .samples = 90, .epochs = 2.5},
                                       {.weight = 1, .samples = 1000}};
  constexpr std::int64_t run = 2000;
  const Shares shares = mixture_shares(mix, run);
  std::vector<Source> sources;
  for (std::size_t i = 0; i < mix.size(); ++i)
    sources.push_back({.samples = static_cast<std::int64_t>(mix[i].samples), .weight = shares[i]});
  Sampler sampler(sources, 7);
  for (int i = 0; i < run; ++i) (void)sampler.next();
  EXPECT_LE(sampler.state().taken[0], 3 * 70 + 1);
  EXPECT_LE(sampler.state().taken[1], 225 + 1);
  EXPECT_EQ(std::accumulate(sampler.state().taken.begin(), sampler.state().taken.end(), std::int64_t{0}), run);
}

TEST(MixtureShares, RefuseARunBeyondAllEpochs) {
  test::expect_parts(test::error_of(ExitCode::usage,
                                    [] {
                                      (void)mixture_shares({{.weight = 1, .samples = 100, .epochs = 2},
                                                            {.weight = 1, .samples = 50, .epochs = 1}},
                                                           300);
                                    }),
                     {"250 samples within the epochs", "300", "train.steps"});
}

TEST(MixtureWeights, ComeFromSizesAndTemperature) {
  const test::TemporaryDirectory dir;
  test::write_tokens(dir / "a.bin", test::counting(0, 16001));
  test::write_tokens(dir / "b.bin", test::counting(0, 1001));
  config::RunConfig run;
  run.data.seq_len = 10;
  run.data.weighted = true;
  run.model.vocab_size = 50000;
  run.train.steps = 100;
  run.batch.global = 4;
  run.data.train = {{.path = dir / "a.bin#temperature=2"}, {.path = dir / "b.bin#temperature=2", .weight = 2}};
  const config::Data data = with_mixture_weights(run);
  const double ratio = std::sqrt(16001.0 / 1001) / 2;
  EXPECT_EQ(data.train[0].path, dir / "a.bin");
  EXPECT_NEAR(data.train[0].weight / data.train[1].weight, ratio, 1e-9);
  run.data.train[0].path = dir / "a.bin#temperature=1,epochs=0.125";
  EXPECT_NEAR(with_mixture_weights(run).train[0].weight, 0.125 * 1600 / 400, 1e-9);
}

}  // namespace
}  // namespace trireme::data::mixture_test
