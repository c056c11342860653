// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/config/run_config.hpp"

namespace trireme::optim {

/// The learning rate of step `step` (from 0) under `schedule`, whose highest is `lr`: linear warmup, then with
/// x = (step - warmup) / (end - warmup) and min = lr * min_ratio: cosine min + (lr - min)/2 * (1 + cos(pi x)), linear
/// lr + (min - lr) x, wsd lr until end - wsd_decay_steps and linear to min from there; min from end_step on
/// (`train_steps` when absent). constant stays at lr after its warmup.
[[nodiscard]] double learning_rate(const config::Lr& schedule, double lr, std::int64_t step, std::int64_t train_steps);

}  // namespace trireme::optim
