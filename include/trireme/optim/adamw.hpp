// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>
#include <span>

#include "trireme/config/run_config.hpp"
#include "trireme/optim/decay.hpp"
#include "trireme/optim/team.hpp"

namespace trireme::optim {

/// The numbers of one update.
struct AdamWStep {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0;
  std::int64_t count = 1;  ///< updates applied, this one included: bias correction goes by it, not by the step
  double gradient_factor =
      1.0;  ///< every gradient is multiplied by it: the clip factor, over the loss scale if there is one
};

[[nodiscard]] AdamWStep adamw_step(const config::Optimizer& optimizer, double lr, std::int64_t count,
                                   double gradient_factor);

/// State of a shard between steps: fp32, [shard_elements] each, not overlapping.
struct AdamWState {
  std::span<float> master;
  std::span<float> first_moment;
  std::span<float> second_moment;
};

/// The same where masters are split (store/masters.hpp): what is gathered of them, and what that leaves.
struct SplitAdamWState {
  std::span<c10::BFloat16> gathered;
  std::span<std::int16_t> remainder;
  std::span<float> first_moment;
  std::span<float> second_moment;
};

/// One AdamW update (Loshchilov and Hutter 2019, as torch.optim.AdamW) of the elements in `ranges`, in one pass over
/// memory:
///   g = gradient * gradient_factor;  m += (1 - beta1)(g - m);  v = beta2 v + (1 - beta2) g^2
///   master -= lr weight_decay master (where the range decays) + lr / (1 - beta1^count) * m / (sqrt(v / (1 -
///   beta2^count)) + eps)
/// gradient: [shard_elements]. compute: [shard_elements] or empty; receives the new masters rounded to bf16.
/// Elements outside the ranges are neither read nor written. The same bits on any number of threads and on any x86-64
/// with FMA. One call at a time on a team; returns when it is done.
void adamw(const AdamWStep& step, std::span<const DecayRange> ranges, std::span<const float> gradient, AdamWState state,
           std::span<c10::BFloat16> compute = {}, const Team& team = {});
void adamw(const AdamWStep& step, std::span<const DecayRange> ranges, std::span<const c10::BFloat16> gradient,
           AdamWState state, std::span<c10::BFloat16> compute = {}, const Team& team = {});
/// The first one's masters and moments, bit for bit; what is gathered is rounded with ties away from zero.
void adamw(const AdamWStep& step, std::span<const DecayRange> ranges, std::span<const float> gradient,
           SplitAdamWState state, const Team& team = {});

}  // namespace trireme::optim
