// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/train/engine/job.hpp"

namespace trireme::train {

/// Warns of the first step in which this rank's experts got more rows than `plan` counts its memory with.
class ExpertRoom {
 public:
  /// step: from 0.
  void look_at(const Job& job, const executor::StepResult& result, std::int64_t step);

 private:
  bool warned_ = false;
};

}  // namespace trireme::train
