// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/validate/fit.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "trireme/planner/time/percentiles.hpp"

namespace trireme::planner {
namespace {

struct Parameter {
  std::function<double&(Fleet&)> of;
  double least, most;
};

/// Bounds: no rate above the data sheet of the fitted fleet, no latency below that of its network.
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

struct Bounded {
  double value, least, most;
};

/// Steps along one number at a time, smaller ones when none helps.
std::vector<Bounded> descended(std::vector<Bounded> numbers,
                               const std::function<double(const std::vector<Bounded>&)>& loss_of) {
  double best = loss_of(numbers);
  for (double step = 0.2; step > 2e-3;) {
    bool better = false;
    for (Bounded& number : numbers)
      for (const double factor : {1 + step, 1 / (1 + step)}) {
        const double before = std::exchange(number.value, std::clamp(number.value * factor, number.least, number.most));
        const double with = loss_of(numbers);
        if (with < best - 1e-9) {
          best = with;
          better = true;
        } else {
          number.value = before;
        }
      }
    if (!better) step /= 2;
  }
  return numbers;
}

}  // namespace

double predicted_rate(const PublishedRow& row, const Fleet& fleet) {
  const bool simulated = row.sharding >= Sharding::zero2;
  const double seconds =
      simulated ? simulated_step(row, fleet.machine, fleet.trainer) : published_step(row, fleet.machine, fleet.trainer);
  return row.dp * row.micro * row.accumulation * row.seq_len / seconds / row.ranks;
}

Fleet fitted(const Fleet& start, const std::vector<PublishedRow>& rows) {
  const std::vector<Parameter> along = parameters(start);
  Fleet fleet = start;
  std::vector<Bounded> numbers;
  for (const Parameter& parameter : along) numbers.push_back({parameter.of(fleet), parameter.least, parameter.most});
  const auto with = [&](const std::vector<Bounded>& values) {
    for (std::size_t i = 0; i < along.size(); ++i) along[i].of(fleet) = values[i].value;
    return fleet;
  };
  return with(descended(numbers, [&](const std::vector<Bounded>& values) { return loss(with(values), rows); }));
}

Fleet calibrated(const Fleet& start, const std::vector<PublishedRow>& rows) {
  // Expected deviation of a trainer's kernels from the machine file's, and of single runs from each other: prevents a
  // few rows from moving a rate too far.
  constexpr double all_kernels = 0.3, attention_apart = 0.1;
  const bool two = rows.size() >= 3;
  const auto with = [&](const std::vector<Bounded>& factors) {
    Fleet fleet{.machine = with_compute_rate(start.machine, factors[0].value), .trainer = start.trainer};
    if (two) fleet.machine.attention_flops *= factors[1].value;
    return fleet;
  };
  const auto loss_of = [&](const std::vector<Bounded>& factors) {
    const double all = std::log(factors[0].value) / all_kernels,
                 attention = std::log(factors[1].value) / attention_apart;
    const Fleet fleet = with(factors);
    double sum = all * all + attention * attention;
    for (const PublishedRow& row : rows) sum += loss({fleet.machine, trainer_of(row)}, {row});
    return sum;
  };
  std::vector<Bounded> factors{{1, 0.5, 2}, {1, two ? 0.5 : 1, two ? 2.0 : 1}};
  return with(descended(factors, loss_of));
}

}  // namespace trireme::planner
