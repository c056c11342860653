// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/time/predict.hpp"

#include <algorithm>

#include "planner/time/few_layers.hpp"
#include "trireme/planner/time/percentiles.hpp"
#include "trireme/schedule/passes/build.hpp"

namespace trireme::planner {
namespace {

using schedule::Lane;

constexpr int most_microbatches = 4;  ///< simulated; the others repeat the last

/// a + times * (b - a): what `times` more of what b has and a has not cost.
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

/// One schedule whose ops can be costed for several machines.
struct Built {
  model::Model model;
  schedule::Schedule schedule;
  std::vector<schedule::Need> needs;
  shard::Layout layout;
  ReplayOptions replay_options;

  Built(const config::RunConfig& config, const config::Resolved& mesh, int microbatches, bool one_of_many = false)
      : model(model::build(config.model, tensor_part(config, mesh, 0))),
        schedule(step_of(model, microbatches, schedule::policy_of(config, mesh), one_of_many)),
        needs(schedule::needs(schedule, model)),
        layout(model, mesh.shard),
        replay_options(replay_options_of(config, mesh)) {}
};

Costs::Of costs_of(const Built& built, const config::RunConfig& config, const config::Resolved& mesh) {
  return {.model = built.model,
          .layout = built.layout,
          .replay_options = built.replay_options,
          .mesh = mesh,
          .seq_len = config.data.seq_len,
          .graphs = config.device.cuda_graphs};
}

StepTime step_time(const Built& built, const std::vector<Cost>& costs, const Machine& machine) {
  const Timeline timeline = simulate(built.schedule, built.needs, costs, machine.contention);
  StepTime out{.seconds = timeline.seconds + machine.step_seconds,
               .compute = timeline.busy[static_cast<std::size_t>(Lane::compute)] - timeline.contention,
               .contention = timeline.contention,
               .waits = timeline.waits,
               .busy = timeline.busy,
               .fixed = machine.step_seconds};
  for (const Cost& cost : costs) out.sent[static_cast<std::size_t>(cost.wire)] += cost.bytes;
  return out;
}

/// The step at the expected network, and at its p10 and p90 if they are asked for.
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
    machines_.push_back(machine);
    if (options.percentiles)
      for (const Percentile p : {Percentile::p10, Percentile::p90}) machines_.push_back(at_percentile(machine, p));
  }

  [[nodiscard]] Three step() const {
    if (mesh_.accumulation <= most_microbatches) return microbatches(mesh_.accumulation);
    return each_extrapolated(microbatches(most_microbatches - 1), microbatches(most_microbatches),
                             mesh_.accumulation - most_microbatches);
  }

 private:
  [[nodiscard]] Three microbatches(int count) const {
    const auto few = options_.few_layers ? few_layers(config_) : std::nullopt;
    if (!few) return simulated(count, config_.model.layers);
    return each_extrapolated(simulated(count, few->a), simulated(count, few->b), static_cast<double>(few->times));
  }

  [[nodiscard]] Three simulated(int count, std::int64_t layers) const {
    config::RunConfig config = config_;
    config.model.layers = layers;
    const Built built(config, mesh_, count, options_.few_layers);
    Three out;
    for (const Machine& machine : machines_) {
      const Costs costs(costs_of(built, config, mesh_), machine, options_.software);
      out.push_back(step_time(built, costs.of(built.schedule), machine));
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
         waits[static_cast<std::size_t>(Lane::tensor)];
}

Prediction predict(const config::RunConfig& config, int ranks, const Machine& machine, const PredictOptions& options) {
  const config::Resolved mesh = config::resolve(config, ranks);
  const Three steps = Predictor(config, mesh, machine, options).step();
  const model::Model model = model::build(config.model, tensor_part(config, mesh, 0));
  Prediction out{.expected = steps.front(),
                 .fast = options.percentiles ? steps[1].seconds : steps[0].seconds,
                 .slow = options.percentiles ? steps[2].seconds : steps[0].seconds,
                 .memory = predict_memory(config, mesh, options.few_layers),
                 .tokens = static_cast<double>(config.batch.global * config.data.seq_len),
                 .ranks = ranks,
                 .mesh = mesh};
  out.mfu = out.tokens_per_second() / ranks * model::flops_per_token(model, config.data.seq_len) /
            (machine.peak_flops * (config.precision.compute == DType::fp32 ? machine.fp32_factor : 1));
  return out;
}

PredictedStep predict_ops(const config::RunConfig& config, int ranks, const Machine& machine,
                          const PredictOptions& options) {
  const config::Resolved mesh = config::resolve(config, ranks);
  Built built(config, mesh, std::min(mesh.accumulation, most_microbatches));
  PredictedStep out{.model = built.model, .schedule = built.schedule, .costs = {}, .terms = {}, .timeline = {}};
  out.costs = Costs(costs_of(built, config, mesh), machine, options.software).of(built.schedule, &out.terms);
  out.timeline = simulate(built.schedule, built.needs, out.costs, machine.contention);
  return out;
}

}  // namespace trireme::planner
