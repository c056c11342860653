// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

namespace trireme::optimizer {
struct UpdateRange;
}

/// Shared by AdamW's passes on the host and on a device.
namespace trireme::optim {

struct AdamWStep;

/// The numbers of one update as the passes need them.
struct AdamWScalars {
  float gradient_factor;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float second_correction;  ///< 1 / sqrt(1 - beta2^count)
  float eps;
  float step_size;  ///< lr of the group / (1 - beta1^count)
  float decay;      ///< lr and weight_decay of the group, multiplied
  std::int64_t count;
};
[[nodiscard]] AdamWScalars scalars(const AdamWStep& step, int group);

/// Throws BugError unless Adam's count has begun and `ranges`, of groups of the step, are in order inside a shard of
/// `elements`, and where moments are rounded have the place of their elements.
void expect_update(const AdamWStep& step, std::span<const optimizer::UpdateRange> ranges, std::int64_t elements,
                   bool rounds);

}  // namespace trireme::optim
