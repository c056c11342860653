// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// Expert parallelism: the experts of every layer divided over ranks that hold the same other parameters.
namespace trireme::model {

struct Model;

/// Which experts a rank has: as many as the others, consecutive ones.
struct ExpertPart {
  int rank = 0;
  int ranks = 1;
  friend bool operator==(const ExpertPart&, const ExpertPart&) = default;

  /// Experts of one rank. count: of all, a multiple of `ranks`.
  [[nodiscard]] constexpr std::int64_t held(std::int64_t count) const { return count / ranks; }
  [[nodiscard]] constexpr std::int64_t first(std::int64_t count) const { return rank * held(count); }
};

/// A layer of experts in three stages: route, experts behind Join::dispatch and before Join::combine, and merge. The
/// experts of b3 are a parameter block of their own, b3.experts, whose parameters are of as many parts as there are
/// ranks. Applied to a model that nothing else divides. Throws ConfigError where the ranks do not divide the experts,
/// for a model without experts, and for what does not go with them yet.
[[nodiscard]] Model divide_experts(Model model, const ExpertPart& part);

}  // namespace trireme::model
