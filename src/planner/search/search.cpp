// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/search/search.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/search/candidates.hpp"
#include "trireme/base/error.hpp"
#include "trireme/config/rules.hpp"

namespace trireme::planner {
namespace {

using config::RunConfig;
using schedule::Lane;

PredictOptions quick(ModelCache& models) {
  return {.percentiles = false, .few_layers = true, .memory = false, .models = &models};
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

/// What the step would save if any amount of memory were there.
double lost_to_memory(const RunConfig& config, int ranks, const Machine& machine, double seconds, ModelCache& models) {
  const RunConfig relaxed = with(config, {});
  if (!allowed(relaxed)) return 0;
  return seconds - predict(relaxed, ranks, machine, quick(models)).expected.seconds;
}

std::string bound_by(const RunConfig& config, const Prediction& prediction, const Machine& machine,
                     ModelCache& models) {
  const StepTime& step = prediction.expected;
  std::vector<Loss> losses{{"memory", lost_to_memory(config, prediction.ranks, machine, step.seconds, models)},
                           {"contention", step.contention},
                           {"step_ms", step.fixed}};
  for (const Lane lane : schedule::all_lanes)
    if (lane != Lane::compute)
      losses.push_back({fmt::format("{} lane", schedule::to_text(lane)), step.waits[static_cast<std::size_t>(lane)]});
  const Loss& most = *std::max_element(losses.begin(), losses.end(),
                                       [](const Loss& a, const Loss& b) { return a.seconds < b.seconds; });
  constexpr double little = 0.05;
  if (most.seconds < little * step.seconds) return "compute";
  return fmt::format("{} {:.0f}%", most.name, 100 * most.seconds / step.seconds);
}

Found found(RunConfig config, int ranks, const Machine& machine, ModelCache& models) {
  Prediction prediction = predict(config, ranks, machine, {.few_layers = true, .memory = false, .models = &models});
  const config::Resolved mesh = config::resolve(config, ranks);
  prediction.memory = predict_memory(config, mesh, false, &models);
  std::string bound = bound_by(config, prediction, machine, models);
  return {.config = std::move(config), .prediction = std::move(prediction), .bound_by = std::move(bound)};
}

struct Ranked {
  RunConfig config;
  double tokens_per_second = 0;
};

class Search {
 public:
  Search(const RunConfig& given, int ranks, const Machine& machine, const SearchOptions& options)
      : given_(given), ranks_(ranks), machine_(machine), options_(options) {
    result_.limit = memory_limit(given, machine);
  }

  SearchResult run() {
    const std::vector<RunConfig> groups = candidate_groups(given_, ranks_, machine_);
    for (const RunConfig& group : groups) result_.candidates += static_cast<std::int64_t>(savings_of(group).size());
    for (const RunConfig& group : groups) {
      const auto each = static_cast<std::int64_t>(savings_of(group).size());
      try {
        try_group(group);
      } catch (const ConfigError&) {  // such as heads that the tensor axis does not divide
        result_.refused += each;
      }
      progress_.done += each;
      report();
    }
    for (Ranked& ranked : best_) result_.best.push_back(found(std::move(ranked.config), ranks_, machine_, models_));
    result_.given = found(given_, ranks_, machine_, models_);
    return std::move(result_);
  }

 private:
  void try_group(const RunConfig& group) {
    const config::Resolved mesh = config::resolve(group, ranks_);
    std::vector<Savings> fitting;
    for (const Savings& savings : savings_of(group)) {
      RunConfig candidate = with(group, savings);
      if (!allowed(candidate)) {
        ++result_.refused;
      } else if (std::any_of(fitting.begin(), fitting.end(),
                             [&](const auto& less) { return savings.at_least(less); })) {
        ++result_.outdone;
      } else if (predict_memory(candidate, mesh, /*few_layers=*/true, &models_).total() > result_.limit) {
        ++result_.too_large;
      } else {
        fitting.push_back(savings);
        simulate_and_rank(std::move(candidate));
      }
    }
  }

  void simulate_and_rank(RunConfig candidate) {
    ++result_.simulated;
    const double rate = predict(candidate, ranks_, machine_, quick(models_)).tokens_per_second();
    const auto at =
        std::find_if(best_.begin(), best_.end(), [&](const Ranked& other) { return other.tokens_per_second < rate; });
    best_.insert(at, {.config = std::move(candidate), .tokens_per_second = rate});
    if (best_.size() > options_.keep) best_.pop_back();
    report();
  }

  void report() {
    if (!options_.progress) return;
    progress_.candidates = result_.candidates;
    progress_.simulated = result_.simulated;
    progress_.tokens_per_second = best_.empty() ? 0 : best_.front().tokens_per_second;
    options_.progress(progress_);
  }

  const RunConfig& given_;
  int ranks_;
  const Machine& machine_;
  const SearchOptions& options_;
  SearchResult result_;
  SearchProgress progress_;
  ModelCache models_;
  std::vector<Ranked> best_;
};

}  // namespace

Bytes memory_limit(const RunConfig& config, const Machine& machine) {
  if (config.memory.budget) return *config.memory.budget;
  constexpr double part = 0.9;
  return {static_cast<std::int64_t>(part * static_cast<double>(machine.memory.value))};
}

SearchResult search(const RunConfig& config, int ranks, const Machine& machine, const SearchOptions& options) {
  return Search(config, ranks, machine, options).run();
}

}  // namespace trireme::planner
