// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/ids.hpp"
#include "trireme/schedule/phase.hpp"

/// The verbs of expert parallelism: the rows of tokens go to the ranks that have their experts, and back. How many only
/// a run knows: no need and no proof depends on it.
namespace trireme::schedule {

/// Sums over the ranks that have other tokens of the same sequences how many of each sequence every expert has: the
/// router's backward reads it.
struct SumLoads {
  Block block;
  Stage stage;
  Microbatch microbatch;
  friend bool operator==(const SumLoads&, const SumLoads&) = default;
};
/// Tells every expert rank how many rows it will get for each of its experts in this microbatch.
struct ExchangeCounts {
  Block block;
  Stage stage;
  Microbatch microbatch;
  friend bool operator==(const ExchangeCounts&, const ExchangeCounts&) = default;
};
/// Rows and their weights to the ranks of their experts; backward: the gradients by them back.
struct Dispatch {
  Block block;
  Stage stage;
  Microbatch microbatch;
  Phase phase = Phase::forward;
  friend bool operator==(const Dispatch&, const Dispatch&) = default;
};
/// What experts made of rows back to where those came from; backward: the gradients by it to the experts.
struct Combine {
  Block block;
  Stage stage;
  Microbatch microbatch;
  Phase phase = Phase::forward;
  friend bool operator==(const Combine&, const Combine&) = default;
};

}  // namespace trireme::schedule
