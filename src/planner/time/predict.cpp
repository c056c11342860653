// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/time/predict.hpp"

#include <algorithm>
#include <utility>

#include "planner/time/built.hpp"
#include "planner/time/few_layers.hpp"
#include "planner/time/machine_keys.hpp"
#include "trireme/planner/time/percentiles.hpp"
#include "trireme/schedule/passes/build.hpp"

namespace trireme::planner {
namespace {

using schedule::Lane;

/// Simulated rounds of a pipeline: V-shaped schedules take two to fill.
int rounds_of(const config::RunConfig& config, bool one_of_many) {
  const auto kind = config.pipeline.schedule;
  if (kind == config::PipelineKind::zbv || kind == config::PipelineKind::dualpipev) return one_of_many ? 3 : 4;
  return one_of_many ? 2 : 4;
}

/// a + times * (b - a): adds the difference of b and a another `times` times.
StepTime extrapolated(const StepTime& a, const StepTime& b, double times) {
  const auto line = [&](double x, double y) { return y + times * (y - x); };
  StepTime out{.seconds = line(a.seconds, b.seconds),
               .compute = line(a.compute, b.compute),
               .contention = line(a.contention, b.contention),
               .fixed = b.fixed};
  for (std::size_t i = 0; i < out.waits.size(); ++i) {
    out.waits[i] = std::max(0.0, line(a.waits[i], b.waits[i]));
    out.busy[i] = line(a.busy[i], b.busy[i]);
  }
  for (std::size_t i = 0; i < out.sent.size(); ++i) out.sent[i] = line(a.sent[i], b.sent[i]);
  return out;
}

StepTime step_time(const Timeline& timeline, const std::vector<Cost>& costs, const Machine& machine) {
  StepTime out{.seconds = timeline.seconds + machine.step_seconds,
               .compute = timeline.busy[static_cast<std::size_t>(Lane::compute)] - timeline.contention,
               .contention = timeline.contention,
               .waits = timeline.waits,
               .busy = timeline.busy,
               .fixed = machine.step_seconds};
  for (const Cost& cost : costs) out.sent[static_cast<std::size_t>(cost.wire)] += cost.bytes;
  return out;
}

/// All pipeline ranks, costed and simulated on one machine.
struct Simulated {
  std::vector<std::vector<Cost>> costs;
  std::vector<Timeline> timelines;

  Simulated(const std::vector<Built>& ranks, const config::RunConfig& config, const config::Resolved& mesh,
            const Machine& machine, const Software& software, std::vector<std::vector<std::vector<Term>>>* terms) {
    for (const Built& rank : ranks)
      costs.push_back(Costs(costs_of(rank, config, mesh), machine, software)
                          .of(*rank.schedule, terms == nullptr ? nullptr : &terms->emplace_back()));
    std::vector<RankStep> steps;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      steps.push_back({*ranks[rank].schedule, *ranks[rank].needs, costs[rank]});
    timelines = simulate(steps, machine.contention);
  }

  /// The rank that computes longest: all end together.
  [[nodiscard]] std::size_t busiest() const {
    const auto compute = [](const Timeline& of) { return of.busy[static_cast<std::size_t>(Lane::compute)]; };
    return static_cast<std::size_t>(
        std::max_element(timelines.begin(), timelines.end(),
                         [&](const Timeline& a, const Timeline& b) { return compute(a) < compute(b); }) -
        timelines.begin());
  }
};

/// The step at the expected network and, if requested, at its p10 and p90.
using Three = std::vector<StepTime>;

Three each_extrapolated(const Three& a, const Three& b, double times) {
  Three out;
  for (std::size_t i = 0; i < a.size(); ++i) out.push_back(extrapolated(a[i], b[i], times));
  return out;
}

class Predictor {
 public:
  Predictor(const config::RunConfig& config, const config::Resolved& mesh, const Machine& machine,
            const PredictOptions& options)
      : config_(config), mesh_(mesh), options_(options) {
    expect_rates(machine);
    machines_.push_back(with_shared_cores(machine, config, mesh.ranks()));
    if (options.percentiles)
      for (const Percentile p : {Percentile::p10, Percentile::p90})
        machines_.push_back(at_percentile(machines_.front(), p));
  }

  [[nodiscard]] Three step() const {
    const FewMicrobatches few = few_microbatches(mesh_, rounds_of(config_, options_.few_layers));
    if (few.times == 0) return microbatches(few.more);
    return each_extrapolated(microbatches(few.fewer), microbatches(few.more), few.times);
  }

 private:
  [[nodiscard]] Three microbatches(int count) const {
    const auto few = options_.few_layers && mesh_.pipeline == 1 ? few_layers(config_) : std::nullopt;
    if (!few) return simulated(count, config_.model.layers);
    return each_extrapolated(simulated(count, few->a), simulated(count, few->b), static_cast<double>(few->times));
  }

  [[nodiscard]] Three simulated(int count, std::int64_t layers) const {
    config::RunConfig config = config_;
    config.model.layers = layers;
    const auto ranks = build_ranks(config, mesh_, machines_.front(), count, options_.few_layers, options_.cache,
                                   options_.software.updates_beside);
    Three out;
    for (const Machine& machine : machines_) {
      const Simulated all(ranks, config, mesh_, machine, options_.software, nullptr);
      const std::size_t shown = all.busiest();
      out.push_back(step_time(all.timelines[shown], all.costs[shown], machine));
    }
    return out;
  }

  const config::RunConfig& config_;
  const config::Resolved& mesh_;
  const PredictOptions& options_;
  std::vector<Machine> machines_;
};

}  // namespace

double StepTime::exposed() const {
  return waits[static_cast<std::size_t>(Lane::gather)] + waits[static_cast<std::size_t>(Lane::reduce)] +
         waits[static_cast<std::size_t>(Lane::tensor)] + waits[static_cast<std::size_t>(Lane::context)] +
         waits[static_cast<std::size_t>(Lane::expert)];
}

Prediction predict(const config::RunConfig& config, int ranks, const Machine& machine, const PredictOptions& options) {
  const config::Resolved mesh = config::resolve(config, ranks);
  PlanCache own;
  PlanCache& cache = options.cache == nullptr ? own : *options.cache;
  PredictOptions shared = options;  // results shared by time and memory are built once
  shared.cache = &cache;
  const Three steps = Predictor(config, mesh, machine, shared).step();
  Prediction out{.expected = steps.front(),
                 .fast = options.percentiles ? steps[1].seconds : steps[0].seconds,
                 .slow = options.percentiles ? steps[2].seconds : steps[0].seconds,
                 .memory = options.memory ? predict_memory(config, mesh, options.few_layers, &cache) : Memory{},
                 .tokens = static_cast<double>(config.batch.global * config.data.seq_len),
                 .ranks = ranks,
                 .mesh = mesh};
  out.mfu = out.tokens_per_second() / ranks * cache.flops_per_token(cache.model(config, mesh), config.data.seq_len) /
            (machine.peak_flops * (config.precision.compute == DType::fp32 ? machine.fp32_factor : 1));
  return out;
}

StepPredictor step_seconds_on(const Machine& machine, int ranks) {
  return {.seconds =
              [=](const config::RunConfig& config) {
                return predict(config, ranks, machine, {.percentiles = false, .few_layers = true, .memory = false})
                    .expected.seconds;
              },
          .machine = machine.name};
}

PredictedStep predict_ops(const config::RunConfig& config, int ranks, const Machine& given,
                          const PredictOptions& options) {
  const Machine machine = with_shared_cores(given, config, ranks);
  const config::Resolved mesh = config::resolve(config, ranks);
  const int microbatches = few_microbatches(mesh, rounds_of(config, /*one_of_many=*/true)).more;
  auto pipeline = build_ranks(config, mesh, machine, microbatches, false);
  std::vector<std::vector<std::vector<Term>>> terms;
  Simulated all(pipeline, config, mesh, machine, options.software, &terms);
  const auto shown = options.pipeline_rank ? static_cast<std::size_t>(*options.pipeline_rank) : all.busiest();
  return {.model = std::move(pipeline.at(shown).model),
          .schedule = *pipeline[shown].schedule,
          .costs = std::move(all.costs[shown]),
          .terms = std::move(terms[shown]),
          .timeline = std::move(all.timelines[shown]),
          .pipeline_rank = static_cast<int>(shown)};
}

}  // namespace trireme::planner
