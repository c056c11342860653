// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/optim/team.hpp"
#include "trireme/optimizer/plan.hpp"

namespace trireme::optim {

using optimizer::UpdateRange;

/// The numbers of one update.
struct AdamWStep {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  std::vector<double> weight_decay{0};  ///< by group
  std::vector<double> lr_factor{};      ///< by group; empty: 1 for all
  std::int64_t count = 1;  ///< updates applied, including this one; bias correction depends on it, not on the step
  double gradient_factor =
      1.0;  ///< every gradient is multiplied by it: the clip factor, over the loss scale if there is one
};

[[nodiscard]] AdamWStep adamw_step(const optimizer::OptimizerPlan& plan, double lr, std::int64_t count,
                                   double gradient_factor);

/// Bytes that an update of `elements` elements with states of `states` bytes reads and writes. rounds: it writes a bf16
/// copy of fp32 masters.
[[nodiscard]] Bytes adamw_traffic(std::int64_t elements, Bytes states, bool rounds);

/// State of a shard between steps: fp32 masters, moments in fp32 or bf16, [shard_elements] each, not overlapping. v may
/// be shorter: UpdateRange::second_shift.
template <class Moment>
struct AdamWStateIn {
  std::span<float> master;
  std::span<Moment> m;
  std::span<Moment> v;
};
using AdamWState = AdamWStateIn<float>;
using RoundedAdamWState = AdamWStateIn<c10::BFloat16>;

/// The same for split masters (store/masters.hpp): the gathered bf16 part, and the remainder.
template <class Moment>
struct SplitAdamWStateIn {
  std::span<c10::BFloat16> gathered;
  std::span<std::int16_t> remainder;
  std::span<Moment> m;
  std::span<Moment> v;
};
using SplitAdamWState = SplitAdamWStateIn<float>;
using RoundedSplitAdamWState = SplitAdamWStateIn<c10::BFloat16>;

/// One AdamW update (Loshchilov and Hutter 2019, as torch.optim.AdamW) of the elements in `ranges`, in one pass over
/// memory:
///   g = gradient * gradient_factor;  m += (1 - beta1)(g - m);  v = beta2 v + (1 - beta2) g^2
///   master -= lr weight_decay master + lr / (1 - beta1^count) * m / (sqrt(v / (1 -
///   beta2^count)) + eps)
/// gradient: [shard_elements]. compute: [shard_elements] or empty; receives the new masters rounded to bf16.
/// Elements outside the ranges are neither read nor written. The same bits on any number of threads and on any x86-64
/// with FMA. One call at a time on a team; returns when it is done.
void adamw(const AdamWStep& step, std::span<const UpdateRange> ranges, std::span<const float> gradient,
           AdamWState state, std::span<c10::BFloat16> compute = {}, const Team& team = {});
void adamw(const AdamWStep& step, std::span<const UpdateRange> ranges, std::span<const c10::BFloat16> gradient,
           AdamWState state, std::span<c10::BFloat16> compute = {}, const Team& team = {});
/// The update is computed in fp32 from moments in bf16; then both are rounded stochastically. Each of the two bf16
/// numbers around a moment is taken with a probability such that the mean is the moment. Random words depend on
/// UpdateRange::key, the element of the whole parameter and `count` alone.
void adamw(const AdamWStep& step, std::span<const UpdateRange> ranges, std::span<const float> gradient,
           RoundedAdamWState state, std::span<c10::BFloat16> compute = {}, const Team& team = {});
/// The masters and moments of fp32 masters, bit for bit; gathered values are rounded with ties away from zero.
void adamw(const AdamWStep& step, std::span<const UpdateRange> ranges, std::span<const float> gradient,
           SplitAdamWState state, const Team& team = {});
void adamw(const AdamWStep& step, std::span<const UpdateRange> ranges, std::span<const float> gradient,
           RoundedSplitAdamWState state, const Team& team = {});

}  // namespace trireme::optim
