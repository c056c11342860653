// SPDX-License-Identifier: Apache-2.0
//
// Every schedule x number of microbatches x sync x recompute x offload: all pairs of settings, on as many pipeline
// ranks as there are, each compared with the plain program for 8 steps and with the plan, in bytes and in memory by
// category. Moments in bf16, skipped spikes and norms of blocks alternate.
//
// ranks: 2 3 4
//
// timeout: 1200
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "pipeline_runs.hpp"
#include "trireme/config/load.hpp"

namespace trireme::train::pipeline_runs {
namespace {

using enum config::PipelineKind;
constexpr std::array kinds{gpipe, one_f_one_b, interleaved, zb_h1, zbv, dualpipev};

const std::array syncs{
    config::Sync{},
    config::Sync{.reshard_after_forward = 1},
    config::Sync{.policy = config::SyncPolicy::deferred},
    config::Sync{.policy = config::SyncPolicy::deferred, .reshard_after_forward = 1, .reshard_after_backward = false},
    config::Sync{.policy = config::SyncPolicy::immediate_all},
};
const std::array recomputes{
    config::Memory{.recompute = config::Recompute::none},
    config::Memory{.recompute = config::Recompute::selective},
    config::Memory{.recompute = config::Recompute::block},
    config::Memory{.recompute = config::Recompute::block, .recompute_every = 2},
};
const std::array offloads{
    config::Memory{},
    config::Memory{.offload = config::Offload::optimizer},
    config::Memory{.offload = config::Offload::parameters},
    config::Memory{.offload = config::Offload::parameters, .offload_fraction = 0.5},
};
constexpr int few_some_many = 3;

/// A number for each setting: schedule, microbatches, sync, recompute, offload.
using Settings = std::array<std::size_t, 5>;
constexpr Settings choices{kinds.size(), few_some_many, 5, 4, 4};

/// Settings among which every pair of two different ones stands together at least once, drawn greedily.
std::vector<Settings> all_pairs() {
  std::set<std::array<std::size_t, 4>> missing;  // setting, its value, another one, its value
  for (std::size_t a = 0; a < choices.size(); ++a)
    for (std::size_t b = a + 1; b < choices.size(); ++b)
      for (std::size_t x = 0; x < choices[a]; ++x)
        for (std::size_t y = 0; y < choices[b]; ++y) missing.insert({a, x, b, y});
  const auto met = [](const Settings& s) {
    std::vector<std::array<std::size_t, 4>> pairs;
    for (std::size_t a = 0; a < s.size(); ++a)
      for (std::size_t b = a + 1; b < s.size(); ++b) pairs.push_back({a, s[a], b, s[b]});
    return pairs;
  };
  std::mt19937 random(1);
  std::vector<Settings> all;
  while (!missing.empty()) {
    Settings best{};
    std::ptrdiff_t most = 0;
    for (int tries = 0; tries < 200 || most == 0; ++tries) {
      Settings drawn{};
      for (std::size_t i = 0; i < drawn.size(); ++i) drawn[i] = random() % choices[i];
      const auto pairs = met(drawn);
      const auto news = std::ranges::count_if(pairs, [&](const auto& pair) { return missing.contains(pair); });
      if (news > most) most = news, best = drawn;
    }
    for (const auto& pair : met(best)) missing.erase(pair);
    all.push_back(best);
  }
  return all;
}

/// That the schedule takes on p ranks, and that divide a batch of 48.
std::int64_t microbatches(config::PipelineKind kind, int ranks, std::size_t which) {
  std::vector<std::int64_t> fit;
  for (const std::int64_t count : {1, 2, 3, 4, 6, 8, 12, 16, 24}) {
    if (kind == interleaved && count % ranks != 0) continue;
    if (count >= (kind == dualpipev ? 2 * ranks : kind == interleaved ? ranks : std::max(1, ranks - 1)))
      fit.push_back(count);
  }
  return fit[which];  // below the number of ranks, as many, more
}

struct Case {
  Problem problem;
};

class EverySetting : public test::ParityTest<Case> {
 protected:
  static void SetUpTestSuite() {
    device::install_allocator();
    test::ParityTest<Case>::SetUpTestSuite();
  }
};

TEST_F(EverySetting, WithEveryOtherFollowsThePlainProgramAndThePlan) {
  const int ranks = world_->size();
  const std::vector<Settings> all = all_pairs();
  std::map<Problem, test::Curve> rounded;  // of moments in bf16
  EXPECT_LT(all.size(), 40U);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& [kind, count, sync, recompute, offload] = all[i];
    // The plain program runs one problem for each of two depths; a third of all, on each number of ranks another.
    if (i % 3 != static_cast<std::size_t>(ranks) % 3) continue;
    const bool v = kinds[kind] == zbv || kinds[kind] == dualpipev || kinds[kind] == interleaved;
    const Problem problem = v && ranks == 4 ? Problem::deep : i % 2 == 0 ? Problem::tied : Problem::everything_else;
    config::RunConfig config = problem_run(problem, *files_);
    config.mesh.pipeline = ranks;
    config.pipeline.schedule = kinds[kind];
    config.batch.micro = config.batch.global / microbatches(kinds[kind], ranks, count);
    config.sync = syncs[sync];
    config.memory = recomputes[recompute];
    config.memory.offload = offloads[offload].offload;
    config.memory.offload_fraction = offloads[offload].offload_fraction;
    config.train.skip_spikes = i % 2 == 1;  // no step of so few is one
    config.metrics.block_norms = i % 5 < 2;
    if (i % 5 == 3) config.precision.moments = DType::bf16;
    SCOPED_TRACE(config::print_run_file(config));
    const test::Curve found = curve_as_planned(config, *world_, {.lane_threads = i % 4 != 0, .poison = true});
    if (config.precision.moments == DType::fp32) {
      expect_parity(found, plain(problem));
      continue;
    }
    test::Curve& expected = rounded[problem];
    if (expected.losses.empty()) {
      config::RunConfig plain_run = problem_run(problem, *files_);
      plain_run.precision.moments = DType::bf16;
      expected = test::plain_curve(plain_run, *world_);
    }
    const test::Deviation deviation = test::deviation(found, expected);  // docs/numerics.md
    EXPECT_LE(deviation.loss, 1e-5);
    EXPECT_LE(deviation.grad_norm, 2e-4);
  }
}

}  // namespace
}  // namespace trireme::train::pipeline_runs
