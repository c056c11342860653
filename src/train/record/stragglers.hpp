// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trireme::train {

/// A rank's own parts of the steps of a window.
struct RankWindow {
  double median = 0;  ///< seconds, or relative to the mean over ranks with the same work
  double error = 0;   ///< standard error of the median over the median
};

/// A node whose steps take longer than those of the others, in most of the last windows.
struct Straggler {
  int node = 0;
  std::vector<double> ratios;  ///< over the median of the nodes, by window
  double threshold = 0;        ///< of the last window
};

/// Scores nodes by the own parts of their ranks' steps, without waits for other ranks: the slowest rank waits least.
///
/// A rank's ratio is its median over a window divided by the median over ranks with the same work; a node's is the
/// largest of its ranks, divided by the median over nodes. If that makes medians more exact, each step is first divided
/// by its mean over ranks with the same work. A node exceeds the threshold of a window if its ratio is
/// above 1.1 and above 1 + 3 s. s is the standard error of a ratio of two medians, from the MAD within the windows;
/// from eight nodes on it is at least 1.4826 MAD of the nodes' ratios. A straggler exceeds it in three of the last four
/// windows of ten steps.
///
/// False alarms: let the steps of an even node exceed the threshold with probability e each, independently. A median of
/// ten (the fifth) exceeds it only if six do, with probability p <= 210 e^6. A node is named after a window with
/// probability 4 p^3 at most: for e = 0.1 that is 4e-11, in 500 steps on 1,024 nodes 2e-6.
class StragglerScores {
 public:
  static constexpr std::size_t window_steps = 10;
  static constexpr std::size_t last_windows = 4, least_windows = 3;

  /// By rank: its node, and the kind of its work (ranks of one pipeline stage have the same).
  StragglerScores(std::vector<int> node_of_rank, std::vector<int> work_of_rank);

  /// Takes in a window: own seconds by rank and step. Returns the nodes that are stragglers since this window.
  std::vector<Straggler> add(std::span<const std::vector<double>> own_by_rank);
  /// Nodes that exceeded the threshold in most of the last windows.
  [[nodiscard]] std::vector<int> current() const;
  /// Highest ratio of a node in the last window; nothing before it, and with one node.
  [[nodiscard]] std::optional<double> highest_ratio() const;

 private:
  /// The last windows of a node.
  struct Recent {
    std::vector<double> ratios;
    std::vector<bool> exceeded;
    [[nodiscard]] bool straggles() const;
  };
  [[nodiscard]] std::vector<double> node_ratios(std::span<const RankWindow> by_rank) const;

  std::vector<int> node_of_rank_, work_of_rank_;
  int nodes_ = 0;
  std::vector<Recent> recent_;   ///< by node
  std::optional<double> error_;  ///< mean of the last windows, recent ones with more weight
  std::vector<double> ratios_;   ///< of the last window
};

/// Warning with its evidence. last_step: finished steps at the end of the last window.
[[nodiscard]] std::string to_text(const Straggler& straggler, const std::string& node, int nodes,
                                  std::int64_t last_step);

}  // namespace trireme::train
