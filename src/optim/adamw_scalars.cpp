// SPDX-License-Identifier: Apache-2.0
#include "optim/adamw_scalars.hpp"

#include <cmath>

#include "trireme/base/error.hpp"
#include "trireme/optim/adamw.hpp"
#include "trireme/optim/decay.hpp"

namespace trireme::optim {

AdamWScalars scalars(const AdamWStep& step) {
  const auto count = static_cast<double>(step.count);
  return {.gradient_factor = static_cast<float>(step.gradient_factor),
          .one_minus_beta1 = static_cast<float>(1 - step.beta1),
          .beta2 = static_cast<float>(step.beta2),
          .one_minus_beta2 = static_cast<float>(1 - step.beta2),
          .second_correction = static_cast<float>(1 / std::sqrt(1 - std::pow(step.beta2, count))),
          .eps = static_cast<float>(step.eps),
          .step_size = static_cast<float>(step.lr / (1 - std::pow(step.beta1, count))),
          .decay = static_cast<float>(step.lr * step.weight_decay)};
}

void expect_update(const AdamWStep& step, std::span<const DecayRange> ranges, std::int64_t elements) {
  invariant(step.count >= 1, "Adam counts its updates from 1");
  std::int64_t end = 0;
  for (const DecayRange& range : ranges) {
    invariant(range.elements.begin >= end && range.elements.end >= range.elements.begin,
              "ranges are in order and do not overlap");
    end = range.elements.end;
  }
  invariant(end <= elements, "ranges lie inside the shard");
}

}  // namespace trireme::optim
