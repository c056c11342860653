// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/learning_rate.hpp"

#include <cmath>
#include <numbers>

namespace trireme::optim {

double learning_rate(const config::Lr& schedule, double lr, std::int64_t step, std::int64_t train_steps) {
  const std::int64_t warmup = schedule.warmup_steps;
  const std::int64_t end = schedule.end_step.value_or(train_steps);
  if (step < warmup) return lr * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (schedule.schedule == config::LrSchedule::constant) return lr;

  const double min = lr * schedule.min_ratio;
  if (step >= end) return min;
  const double x = static_cast<double>(step - warmup) / static_cast<double>(end - warmup);
  switch (schedule.schedule) {
    case config::LrSchedule::cosine: return min + (lr - min) / 2 * (1 + std::cos(std::numbers::pi * x));
    case config::LrSchedule::linear: return lr + (min - lr) * x;
    case config::LrSchedule::wsd: {
      if (warmup + schedule.wsd_decay_steps > end) return lr;  // the first steps of a longer run
      const std::int64_t decaying = step - (end - schedule.wsd_decay_steps);
      return decaying <= 0
                 ? lr
                 : lr + (min - lr) * static_cast<double>(decaying) / static_cast<double>(schedule.wsd_decay_steps);
    }
    case config::LrSchedule::constant: break;
  }
  return lr;
}

}  // namespace trireme::optim
