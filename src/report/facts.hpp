// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/report/run_record.hpp"

namespace trireme::report {

/// Settings and results of a run, a name and a text each; those missing from its files are left out.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> facts(const RunRecord& run);

/// A large number on top of the page.
struct Figure {
  std::string name, text;  ///< "tokens/s" and "12.3k"
  std::string note;        ///< a line of explanation
};

/// Loss, tokens/s, time and memory; those that the run's files do not have are left out.
[[nodiscard]] std::vector<Figure> figures(const RunRecord& run);

/// Date, ranks, device and version: one line.
[[nodiscard]] std::string origin(const RunRecord& run);

/// (step, seconds of training until then), without the time between the starts of a run.
[[nodiscard]] Points elapsed(const RunRecord& run);

/// The last loss: the mean of as many steps as the smoothed curve takes; nothing without a loss.
struct LastLoss {
  double value = 0;
  std::size_t steps = 1;
};
[[nodiscard]] std::optional<LastLoss> last_loss(const RunRecord& run);

/// The lowest validation loss and its step; nothing without an evaluation.
[[nodiscard]] std::optional<Point> best_validation(const RunRecord& run);

/// Window of the smoothed loss for `points` points: 2% of them; 1 if there are less than 100.
[[nodiscard]] std::size_t smoothing_window(std::size_t points);

/// Points far above the median of the 101 around them.
struct Spikes {
  Points points;
  Point highest;
  double usual = 0;  ///< median around the highest
};
/// Gradient norms above ten times the median.
[[nodiscard]] Spikes gradient_spikes(const RunRecord& run);
/// Losses above the median by a tenth of it and by twelve times the usual deviation.
[[nodiscard]] Spikes loss_spikes(const RunRecord& run);

/// The highest number of a series; 0 without points.
[[nodiscard]] double highest(const Points& points);

/// Warnings for the reader.
[[nodiscard]] std::vector<std::string> warnings(const RunRecord& run);

/// The points of a series; none if the run has no such key.
[[nodiscard]] const Points& series(const RunRecord& run, const std::string& key);

/// The middle number; of the steps after the first three, which warm up, if there are more.
[[nodiscard]] double median(const Points& points);

}  // namespace trireme::report
