// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/validate/fit.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "trireme/planner/time/percentiles.hpp"

namespace trireme::planner {
namespace {

struct Parameter {
  std::function<double&(Fleet&)> of;
  double least, most;
};

/// Bounds: no rate above the data sheet of the fleet that is fitted, no latency below what its network can do.
std::vector<Parameter> parameters(const Fleet& fleet) {
  const double peak = fleet.machine.peak_flops;
  return {{[](Fleet& f) -> double& { return f.machine.products.back().rate; }, 0.5 * peak, 0.9 * peak},
          {[](Fleet& f) -> double& { return f.machine.attention_flops; }, 0.25 * peak, 0.6 * peak},
          {[](Fleet& f) -> double& { return f.machine.memory_bandwidth; }, 1e12, 2.7e12},
          {[](Fleet& f) -> double& { return f.machine.inside.bandwidth; }, 100e9, 400e9},
          {[](Fleet& f) -> double& { return f.machine.between.bandwidth; }, 50e9, 400e9},
          {[](Fleet& f) -> double& { return f.machine.between.rank_latency; }, 0.2e-6, 10e-6},
          {[](Fleet& f) -> double& { return f.trainer.latency; }, 5e-6, 200e-6},
          {[](Fleet& f) -> double& { return f.trainer.layer_seconds; }, 1e-3, 10e-3},
          {[](Fleet& f) -> double& { return f.trainer.step_seconds; }, 2e-3, 60e-3}};
}

double loss(const Fleet& fleet, const std::vector<PublishedRow>& rows) {
  double sum = 0;
  for (const PublishedRow& row : rows) {
    const double error = std::log(predicted_rate(row, fleet) / row.tokens_per_second_per_gpu) / 0.03;
    sum += std::log1p(error * error);
  }
  return sum;
}

/// Steps along one parameter at a time, smaller ones when none helps.
Fleet descended(Fleet fleet, const std::vector<Parameter>& along, const std::vector<PublishedRow>& rows) {
  double best = loss(fleet, rows);
  for (double step = 0.2; step > 2e-3;) {
    bool better = false;
    for (const Parameter& parameter : along)
      for (const double factor : {1 + step, 1 / (1 + step)}) {
        Fleet next = fleet;
        double& value = parameter.of(next);
        value = std::clamp(value * factor, parameter.least, parameter.most);
        const double with = loss(next, rows);
        if (with >= best - 1e-9) continue;
        best = with;
        fleet = std::move(next);
        better = true;
      }
    if (!better) step /= 2;
  }
  return fleet;
}

}  // namespace

double predicted_rate(const PublishedRow& row, const Fleet& fleet) {
  const bool simulated = row.sharding >= Sharding::zero2;
  const double seconds =
      simulated ? simulated_step(row, fleet.machine, fleet.trainer) : published_step(row, fleet.machine, fleet.trainer);
  return row.dp * row.micro * row.accumulation * row.seq_len / seconds / row.ranks;
}

Fleet fitted(const Fleet& start, const std::vector<PublishedRow>& rows) {
  return descended(start, parameters(start), rows);
}

Fleet calibrated(const Fleet& start, const std::vector<PublishedRow>& rows) {
  // A factor of all compute: found by repeated division, as the compute part of a step is most of it.
  Fleet fleet = start;
  for (int round = 0; round < 4; ++round) {
    std::vector<double> ratios;
    for (const PublishedRow& row : rows)
      ratios.push_back(row.tokens_per_second_per_gpu / predicted_rate(row, {fleet.machine, trainer_of(row)}));
    std::ranges::sort(ratios);
    const double middle = (ratios[(ratios.size() - 1) / 2] + ratios[ratios.size() / 2]) / 2;
    fleet.machine = with_compute_rate(fleet.machine, std::clamp(middle, 0.5, 2.0));
  }
  if (rows.size() < 3) return fleet;
  const double products = fleet.machine.products.back().rate, attention = fleet.machine.attention_flops;
  return descended(
      fleet,
      {{[](Fleet& f) -> double& { return f.machine.products.back().rate; }, products / 1.5, products * 1.5},
       {[](Fleet& f) -> double& { return f.machine.attention_flops; }, attention / 2, attention * 2}},
      rows);
}

}  // namespace trireme::planner
