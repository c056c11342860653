// SPDX-License-Identifier: Apache-2.0
#include "trireme/optimizer/spikes.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

namespace trireme::optimizer {
namespace {

/// Distance of `value` from the mean in standard deviations. Values are taken relative to the first one: equal ones
/// have a deviation of exactly 0.
double distance(std::span<const double> values, double value) {
  const auto count = static_cast<double>(values.size());
  double sum = 0;
  for (const double one : values) sum += one - values.front();
  const double mean = sum / count;
  double squares = 0;
  for (const double one : values) squares += (one - values.front() - mean) * (one - values.front() - mean);
  const double above = value - values.front() - mean;
  const double deviation = std::sqrt(squares / (count - 1));
  if (deviation > 0) return above / deviation;
  return above == 0 ? 0 : std::copysign(std::numeric_limits<double>::infinity(), above);
}

}  // namespace

std::optional<double> SpikeWindow::score(double loss, double grad_norm) const {
  if (losses.size() < least || !std::isfinite(loss) || !std::isfinite(grad_norm)) return std::nullopt;
  return std::max(distance(losses, loss), distance(grad_norms, grad_norm));
}

bool SpikeWindow::is_spike(double loss, double grad_norm) const {
  return score(loss, grad_norm).value_or(0) > most_distance;
}

void SpikeWindow::add(double loss, double grad_norm) {
  if (!std::isfinite(loss) || !std::isfinite(grad_norm)) return;
  for (const auto& [values, value] : {std::pair{&losses, loss}, {&grad_norms, grad_norm}}) {
    values->push_back(value);
    if (values->size() > most) values->erase(values->begin());
  }
}

}  // namespace trireme::optimizer
