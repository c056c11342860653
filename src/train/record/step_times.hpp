// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/mpi/communicator.hpp"

namespace trireme::train {

/// Whom messages name: "rank 3 on n2".
using RankName = std::function<std::string(int rank)>;

/// Durations of one rank's own part of its steps, without waits for other ranks: all ranks end a step together, and
/// only this shows the slow rank. A histogram: bucket i holds times up to `upper_seconds(i)`.
class StepTimes {
 public:
  static constexpr int buckets = 100;
  /// 20 us * 2^(i/4), so that a time is known to 19%; the last bucket takes all that is longer.
  [[nodiscard]] static double upper_seconds(int bucket);

  void add(double own_seconds);
  [[nodiscard]] std::uint32_t steps() const;
  /// The time that a part `share` (0 to 1) of the steps did not exceed, to the bucket's upper end; 0 without steps.
  [[nodiscard]] double quantile(double share) const;
  [[nodiscard]] const std::array<std::uint32_t, buckets>& counts() const { return counts_; }

  /// Every rank's times, by rank, on rank 0; nothing elsewhere. Collective over `communicator`.
  [[nodiscard]] static std::vector<StepTimes> gather(const mpi::Communicator& communicator, const StepTimes& mine);

 private:
  std::array<std::uint32_t, buckets> counts_{};
};

/// The rank with the longest median, and the usual one. Nothing when no rank has a step.
struct Slowest {
  int rank = 0;
  double median_seconds = 0;
  double usual_seconds = 0;  ///< the median of the ranks' medians
  [[nodiscard]] bool straggles() const;
};
[[nodiscard]] std::optional<Slowest> slowest(const std::vector<StepTimes>& by_rank);

/// Message for a straggler.
[[nodiscard]] std::string to_text(const Slowest& slowest, const RankName& name);

/// The histograms of all ranks as JSON, for step_times.json.
[[nodiscard]] std::string to_json(const std::vector<StepTimes>& by_rank, const RankName& name);

}  // namespace trireme::train
