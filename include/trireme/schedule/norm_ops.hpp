// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/ids.hpp"
#include "trireme/schedule/phase.hpp"

/// Verbs of norms whose rows the tensor axis divides.
namespace trireme::schedule {

/// Sums over the tensor axis what each rank knows of its heads of every token, fp32, one value for queries and one for
/// keys: before a qk_norm's forward their squares; before the end of its backward the products of their gradients with
/// what was normed, which it then takes off the gradients.
struct AllReduceStatistics {
  Block block;
  Stage stage;
  Microbatch microbatch;
  Phase phase = Phase::forward;
  friend bool operator==(const AllReduceStatistics&, const AllReduceStatistics&) = default;
};

}  // namespace trireme::schedule
