// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// Expert parallelism: the experts of every layer divided over ranks that hold the same other parameters.
namespace trireme::model {

struct Model;

/// The experts of a rank: consecutive ones, the same number on every rank.
struct ExpertPart {
  int rank = 0;
  int ranks = 1;
  /// A loss reads how many tokens of a sequence each expert has: where ranks divide sequences, those are summed.
  bool needs_loads = false;
  friend bool operator==(const ExpertPart&, const ExpertPart&) = default;

  /// Experts of one rank. count: of all, a multiple of `ranks`.
  [[nodiscard]] constexpr std::int64_t held(std::int64_t count) const { return count / ranks; }
  [[nodiscard]] constexpr std::int64_t first(std::int64_t count) const { return rank * held(count); }
};

/// A layer of experts in three stages: route, experts after Exchange::dispatch and before Exchange::combine, and
/// merge. The experts of b3 are a separate parameter block, b3.experts, whose parameters are of as many parts as
/// there are ranks. With one expert rank and several tensor ranks they are such a block, too: the stage stays whole,
/// and reads both. Applied last. Throws ConfigError if the ranks do not divide the experts, and for a model without
/// experts.
[[nodiscard]] Model divide_experts(Model model, const ExpertPart& part);

}  // namespace trireme::model
