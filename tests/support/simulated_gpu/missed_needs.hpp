// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/jobs.hpp"
#include "support/simulated_gpu/engine.hpp"
#include "trireme/schedule/access.hpp"

/// Needs of a schedule, taken out kind by kind: training computes something else then, or nothing shows that they are
/// kept.
namespace trireme::test {

struct NeedKind {
  std::string name;
  std::function<bool(const schedule::Op& from, const schedule::Op& to)> is;
  int events_to = 0;   ///< ranks up to which late streams show it, on one thread; 0: they never do
  int lanes_from = 0;  ///< ranks from which a slow lane shows it; 0: none does
};

/// A training, and the settings that can reveal a missing need.
struct MissedNeeds {
  config::RunConfig config;
  train::JobOptions options;
  std::vector<schedule::Lane> slow_lanes;            ///< one at a time, with lane threads
  std::function<bool(schedule::Lane)> is_slow_here;  ///< on this rank
  bool late_shows = true;                            ///< whether late streams show what is kept by events

  void expect_all(std::span<const NeedKind> kinds, const mpi::Communicator& world) const {
    const double expected = trained(nullptr, std::nullopt, 0, world);
    for (const NeedKind& kind : kinds) {
      if (gpu::late()) {
        if (world.size() <= kind.events_to && late_shows) {
          EXPECT_NE(trained(&kind, std::nullopt, 0, world), expected) << "nobody misses that " << kind.name;
        }
        continue;
      }
      if (kind.lanes_from == 0 || kind.lanes_from > world.size()) continue;
      // On a busy machine, whose other lanes are slow too, a longer sleep is needed.
      const bool seen = std::ranges::any_of(std::array{1, 10, 50}, [&](int milliseconds) {
        return std::ranges::any_of(
            slow_lanes, [&](schedule::Lane slow) { return trained(&kind, slow, milliseconds, world) != expected; });
      });
      EXPECT_TRUE(seen) << "nobody misses that " << kind.name;
    }
  }

 private:
  /// The sum of all losses and norms, without needs of a kind and with a lane that sleeps before each of its ops.
  [[nodiscard]] double trained(const NeedKind* without, std::optional<schedule::Lane> slow, int milliseconds,
                               const mpi::Communicator& world) const {
    train::JobOptions how = options;
    how.lane_threads = slow.has_value();
    schedule::Schedule list;
    const auto op = [&](int number) -> const schedule::Op& { return list.ops[static_cast<std::size_t>(number)]; };
    how.needs = [&](const schedule::Schedule& step, const model::Model& model) {
      list = step;
      std::vector<schedule::Need> needs = schedule::needs(step, model);
      const std::size_t erased = std::erase_if(needs, [&](const schedule::Need& need) {
        return without != nullptr && without->is(op(need.from), op(need.to));
      });
      EXPECT_EQ(erased > 0, without != nullptr);
      return needs;
    };
    how.on_op = [&](int number, std::int64_t) {
      if (slow && schedule::lane_of(op(number)) == *slow && is_slow_here(*slow))
        std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    };
    const Curve curve = train_job(config, world, how).curve;
    double sum = 0;
    for (std::size_t i = 0; i < curve.losses.size(); ++i) sum += curve.losses[i] + curve.grad_norms[i];
    return sum;
  }
};

}  // namespace trireme::test
