// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/search/search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>

#include "planner/search/candidates.hpp"
#include "planner/time/plan_cache.hpp"
#include "trireme/base/error.hpp"
#include "trireme/config/rules.hpp"

namespace trireme::planner {
namespace {

using config::RunConfig;
using schedule::Lane;

PredictOptions quick(PlanCache& cache) {
  return {.percentiles = false, .few_layers = true, .memory = false, .cache = &cache};
}

bool allowed(const RunConfig& config) {
  return std::none_of(config::rules().begin(), config::rules().end(),
                      [&](const config::Rule& rule) { return rule.broken(config).has_value(); });
}

/// A part of a step that a faster machine or more memory would save.
struct Loss {
  std::string name;
  double seconds = 0;
};

/// Seconds that the step would save with unlimited memory.
double lost_to_memory(const RunConfig& config, int ranks, const Machine& machine, double seconds, PlanCache& cache) {
  const RunConfig relaxed = with(config, {});
  if (!allowed(relaxed)) return 0;
  return seconds - predict(relaxed, ranks, machine, quick(cache)).expected.seconds;
}

std::string bound_by(const RunConfig& config, const Prediction& prediction, const Machine& machine, PlanCache& cache) {
  const StepTime& step = prediction.expected;
  std::vector<Loss> losses{{"memory", lost_to_memory(config, prediction.ranks, machine, step.seconds, cache)},
                           {"contention", step.contention},
                           {"host time", step.fixed}};
  for (const Lane lane : schedule::all_lanes)
    if (lane != Lane::compute)
      losses.push_back({fmt::format("{} lane", schedule::to_text(lane)), step.waits[static_cast<std::size_t>(lane)]});
  const Loss& most = *std::max_element(losses.begin(), losses.end(),
                                       [](const Loss& a, const Loss& b) { return a.seconds < b.seconds; });
  constexpr double little = 0.05;
  if (most.seconds < little * step.seconds) return "compute";
  return fmt::format("{} {:.0f}%", most.name, 100 * most.seconds / step.seconds);
}

Found found(RunConfig config, int ranks, const Machine& machine, PlanCache& cache) {
  Prediction prediction = predict(config, ranks, machine, {.few_layers = true, .memory = false, .cache = &cache});
  const config::Resolved mesh = config::resolve(config, ranks);
  prediction.memory = predict_memory(config, mesh, false, &cache);
  std::string bound = bound_by(config, prediction, machine, cache);
  const NodeMemory host = host_memory_of_node(prediction.memory, mesh, machine);
  return {.config = std::move(config), .prediction = std::move(prediction), .host = host, .bound_by = std::move(bound)};
}

/// A mesh, microbatch and policy, with all savings.
struct TriedGroup {
  std::size_t group = 0;  ///< its place in the order of candidates
  RunConfig config;
  std::optional<config::Resolved> mesh{};  ///< absent: ruled out
  std::vector<Savings> fitting{};
};

/// Settings that determine the schedules of a step, which do not depend on shards, replicas and microbatch size.
auto schedule_key(const RunConfig& config) {
  return std::tuple(config.mesh.pipeline, config.pipeline.schedule, config.mesh.context, config.mesh.tensor,
                    config.mesh.expert, config.sync.policy, config.sync.reshard_after_forward,
                    config.sync.reshard_after_backward);
}

struct Ranked {
  RunConfig config;
  double tokens_per_second = 0;
  std::pair<std::size_t, std::size_t> at;  ///< group and savings: of equals the first
  [[nodiscard]] bool before(const Ranked& other) const {
    return tokens_per_second != other.tokens_per_second ? tokens_per_second > other.tokens_per_second : at < other.at;
  }
};

class Search {
 public:
  Search(const RunConfig& given, int ranks, const Machine& machine, const SearchOptions& options)
      : given_(given), ranks_(ranks), machine_(machine), options_(options) {
    result_.limit = memory_limit(given, machine);
    result_.host_limit = host_memory_limit(machine);
  }

  SearchResult run() {
    std::map<decltype(schedule_key(given_)), std::vector<TriedGroup>> by_key;
    std::size_t count = 0;
    for (RunConfig& group : candidate_groups(given_, ranks_, machine_)) {
      result_.candidates += static_cast<std::int64_t>(savings_of(group).size());
      auto& of_key = by_key[schedule_key(group)];
      of_key.push_back({.group = count++, .config = std::move(group)});
    }
    std::vector<std::vector<TriedGroup>> alike;
    for (auto& [key, groups] : by_key) alike.push_back(std::move(groups));
    std::ranges::stable_sort(alike, std::ranges::greater{}, [](const auto& groups) { return groups.size(); });
    try_all(alike);
    PlanCache cache;
    for (Ranked& ranked : best_) {
      if (result_.best.size() == options_.keep) break;
      Found one = found(std::move(ranked.config), ranks_, machine_, cache);
      if (fit_of(one.config, one.prediction.memory, one.prediction.mesh, machine_).both())
        result_.best.push_back(std::move(one));
    }
    result_.given = found(given_, ranks_, machine_, cache);
    result_.given_fit = fit_of(given_, result_.given.prediction.memory, result_.given.prediction.mesh, machine_);
    put_given_first();
    return std::move(result_);
  }

 private:
  /// A run file whose settings are no candidate, such as a part that is offloaded, may be the fastest that fits.
  void put_given_first() {
    std::vector<Found>& best = result_.best;
    if (options_.keep == 0 || result_.candidates == 0 || !result_.given_fit.both()) return;
    const auto rate = [](const Found& found) { return found.prediction.tokens_per_second(); };
    if (!best.empty() && rate(best.front()) >= rate(result_.given)) return;
    best.insert(best.begin(), result_.given);
    if (best.size() > options_.keep) best.pop_back();
  }

  using Count = std::int64_t SearchResult::*;
  /// Ranked in addition to those that are kept, as a few layers may fit if all do not.
  static constexpr std::size_t spare = 6;

  /// On all cores, the longest lists first; each thread has its own cache. The result does not depend on which
  /// thread is first.
  void try_all(std::vector<std::vector<TriedGroup>>& alike) {
    std::atomic<std::size_t> next = 0;
    std::exception_ptr failure;
    const auto work = [&] {
      try {
        PlanCache cache;
        for (std::size_t i = next++; i < alike.size(); i = next++) try_alike(alike[i], cache);
      } catch (...) {
        next = alike.size();
        const std::scoped_lock lock(mutex_);
        failure = std::current_exception();
      }
    };
    const auto most = std::min(alike.size(), std::size_t{std::max(1U, std::thread::hardware_concurrency())});
    {
      std::vector<std::jthread> others;
      for (std::size_t i = 1; i < most; ++i) others.emplace_back(work);
      work();
    }
    if (failure) std::rethrow_exception(failure);
  }

  /// Groups with one schedule_key(). Those with the same savings follow each other, so that they find their schedules
  /// in the cache.
  void try_alike(std::vector<TriedGroup>& groups, PlanCache& cache) {
    for (TriedGroup& group : groups) {
      try {
        group.mesh = config::resolve(group.config, ranks_);
      } catch (const ConfigError&) {
        // Ruled out with all savings, such as a group whose tensor axis does not divide the heads.
      }
    }
    const std::vector<Savings>& savings = savings_of(groups.front().config);
    for (std::size_t i = 0; i < savings.size(); ++i)
      for (TriedGroup& group : groups) {
        Count as = &SearchResult::refused;
        try {
          if (group.mesh) as = try_one(group, savings[i], i, cache);
        } catch (const ConfigError&) {
          group.mesh.reset();
        }
        report(as);
      }
  }

  /// Returns the category of the candidate.
  Count try_one(TriedGroup& group, const Savings& savings, std::size_t number, PlanCache& cache) {
    RunConfig candidate = with(group.config, savings);
    if (!allowed(candidate)) return &SearchResult::refused;
    if (std::ranges::any_of(group.fitting, [&](const auto& less) { return savings.at_least(less); }))
      return &SearchResult::outdone;
    Fit fit = fits(candidate, *group.mesh, cache);
    if (fit.device && !fit.host && candidate.checkpoint.async) {  // then a save waits for the disk
      candidate.checkpoint.async = false;
      fit = fits(candidate, *group.mesh, cache);
    }
    if (!fit.device) return &SearchResult::too_large;
    if (!fit.host) return &SearchResult::too_large_for_host;
    const double rate = predict(candidate, ranks_, machine_, quick(cache)).tokens_per_second();
    group.fitting.push_back(savings);
    rank({.config = std::move(candidate), .tokens_per_second = rate, .at = {group.group, number}});
    return &SearchResult::simulated;
  }

  /// A few layers are judged at a tenth of the time, and are up to 3% below all: those decide near the limit.
  Fit fits(const RunConfig& candidate, const config::Resolved& mesh, PlanCache& cache) const {
    const Memory memory = predict_memory(candidate, mesh, /*few_layers=*/true, &cache);
    const Fit few = fit_of(candidate, memory, mesh, machine_);
    const auto near = [](Bytes bytes, Bytes limit) { return bytes.value > limit.value / 10 * 9; };
    if (!few.both() ||
        !(near(memory.total(), result_.limit) ||
          (result_.host_limit && near(host_memory_of_node(memory, mesh, machine_).bytes, *result_.host_limit))))
      return few;
    return fit_of(candidate, predict_memory(candidate, mesh), mesh, machine_);
  }

  void rank(Ranked candidate) {
    const std::scoped_lock lock(mutex_);
    const auto at = std::ranges::find_if(best_, [&](const Ranked& other) { return candidate.before(other); });
    best_.insert(at, std::move(candidate));
    if (best_.size() > options_.keep + spare) best_.pop_back();
  }

  void report(Count as) {
    const std::scoped_lock lock(mutex_);
    ++(result_.*as);
    ++done_;
    if (!options_.progress) return;
    options_.progress({.candidates = result_.candidates,
                       .done = done_,
                       .simulated = result_.simulated,
                       .tokens_per_second = best_.empty() ? 0 : best_.front().tokens_per_second});
  }

  const RunConfig& given_;
  int ranks_;
  const Machine& machine_;
  const SearchOptions& options_;
  std::mutex mutex_;  ///< of all that follows
  SearchResult result_;
  std::int64_t done_ = 0;
  std::vector<Ranked> best_;
};

}  // namespace

SearchResult search(const RunConfig& config, int ranks, const Machine& machine, const SearchOptions& options) {
  return Search(config, ranks, machine, options).run();
}

}  // namespace trireme::planner
