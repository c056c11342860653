// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/time/calibrate.hpp"

#include <algorithm>
#include <cmath>

#include "trireme/base/error.hpp"
#include "trireme/planner/time/predict.hpp"

namespace trireme::planner {
namespace {

constexpr double least_bandwidth = 1e8, most_bandwidth = 1e13;  ///< of kernels that move bytes

double predicted_seconds(const TimedStep& step, const Machine& machine) {
  return predict(step.config, 1, machine, {.percentiles = false}).expected.seconds;
}

/// The memory bandwidth with which `step` takes as long as measured: more bandwidth never takes longer.
double bandwidth_of(const TimedStep& step, Machine machine) {
  double low = std::log(least_bandwidth), high = std::log(most_bandwidth);
  for (int halving = 0; halving < 40; ++halving) {
    const double middle = (low + high) / 2;
    machine.memory_bandwidth = std::exp(middle);
    (predicted_seconds(step, machine) > step.seconds ? low : high) = middle;
  }
  return std::exp(high);
}

}  // namespace

Machine with_steps(Machine machine, const TimedStep& shallow, const TimedStep& deep, const TimedStep& wide) {
  const auto layers = static_cast<double>(deep.config.model.layers - shallow.config.model.layers);
  invariant(layers > 0, "the deep step has more layers");
  constexpr double first_guess = 1e10;
  machine.memory_bandwidth = first_guess;
  constexpr int rounds = 6;  // the small steps hardly depend on the bandwidth: far more than are needed
  for (int round = 0; round < rounds; ++round) {
    machine.layer_seconds = machine.step_seconds = 0;
    const double kernels = predicted_seconds(deep, machine) - predicted_seconds(shallow, machine);
    const double a_layer = (deep.seconds - shallow.seconds - kernels) / layers;
    machine.layer_seconds = std::max(0.0, a_layer);
    machine.step_seconds = std::max(0.0, shallow.seconds - predicted_seconds(shallow, machine));
    machine.memory_bandwidth = bandwidth_of(wide, machine);
  }
  return machine;
}

Link fitted_link(std::span<const TimedCollective> collectives, int ranks, const Machine& machine) {
  invariant(ranks > 1, "one rank has no link");
  // latency + moved * pace = seconds, each divided by the seconds.
  double ww = 0, wm = 0, mm = 0, w = 0, m = 0;
  for (const TimedCollective& one : collectives) {
    const double sum = one.reduces ? one.bytes * (1 + 1.0 / ranks) / machine.memory_bandwidth : 0;
    const double seconds = std::max(one.seconds - sum, 0.1 * one.seconds);
    const double weight = 1 / seconds, moved = one.bytes * (ranks - 1) / ranks / seconds;
    ww += weight * weight;
    wm += weight * moved;
    mm += moved * moved;
    w += weight;
    m += moved;
  }
  const double determinant = ww * mm - wm * wm;
  invariant(determinant > 0, "collectives of two sizes at least");
  const double latency = std::max(0.0, (w * mm - m * wm) / determinant);
  const double pace = (m - latency * wm) / mm;
  constexpr double slowest = 1e6, fastest = 1e14;
  return {.latency = latency, .bandwidth = std::clamp(1 / pace, slowest, fastest)};
}

Spread spread_of(std::vector<double> over_median) {
  invariant(!over_median.empty(), "some times");
  std::sort(over_median.begin(), over_median.end());
  const auto at = [&](double part) {
    return over_median[static_cast<std::size_t>(part * static_cast<double>(over_median.size() - 1))];
  };
  return {.p10 = std::clamp(at(0.1), 0.01, 1.0), .p90 = std::clamp(at(0.9), 1.0, 100.0)};
}

}  // namespace trireme::planner
