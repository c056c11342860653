// SPDX-License-Identifier: Apache-2.0
#include "optim/adamw_scalars.hpp"

#include <cmath>

#include "trireme/base/error.hpp"
#include "trireme/optim/adamw.hpp"

namespace trireme::optim {

AdamWScalars scalars(const AdamWStep& step, int group) {
  const auto count = static_cast<double>(step.count);
  const auto index = static_cast<std::size_t>(group);
  const double lr = step.lr * (step.lr_factor.empty() ? 1 : step.lr_factor[index]);
  return {.gradient_factor = static_cast<float>(step.gradient_factor),
          .one_minus_beta1 = static_cast<float>(1 - step.beta1),
          .beta2 = static_cast<float>(step.beta2),
          .one_minus_beta2 = static_cast<float>(1 - step.beta2),
          .second_correction = static_cast<float>(1 / std::sqrt(1 - std::pow(step.beta2, count))),
          .eps = static_cast<float>(step.eps),
          .step_size = static_cast<float>(lr / (1 - std::pow(step.beta1, count))),
          .decay = static_cast<float>(lr * step.weight_decay[index]),
          .count = step.count};
}

void expect_update(const AdamWStep& step, std::span<const UpdateRange> ranges, std::int64_t elements, bool rounds) {
  invariant(step.count >= 1, "Adam counts its updates from 1");
  std::int64_t end = 0;
  for (const UpdateRange& range : ranges) {
    invariant(range.elements.begin >= end && range.elements.end >= range.elements.begin,
              "ranges are in order and do not overlap");
    invariant(range.group >= 0 && range.group < static_cast<int>(step.weight_decay.size()),
              "every range has a group of the step");
    invariant(step.lr_factor.empty() || step.lr_factor.size() == step.weight_decay.size(),
              "every group has a learning rate");
    invariant(!rounds || range.whole.size() == range.elements.size(),
              "ranges of rounded moments have the place of their elements in the whole parameter");
    end = range.elements.end;
  }
  invariant(end <= elements, "ranges lie inside the shard");
}

}  // namespace trireme::optim
