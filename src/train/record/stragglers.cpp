// SPDX-License-Identifier: Apache-2.0
#include "train/record/stragglers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "trireme/base/text.hpp"

namespace trireme::train {
namespace {

constexpr double least_excess = 0.1;
constexpr double deviations = 3;
constexpr int least_nodes = 8;                 // whose MAD is an estimate
constexpr double normal_mad = 1.4826;          // standard deviation of a normal distribution over its MAD
constexpr double median_error = 1.2533141373;  // standard error of a median over that of a mean, sqrt(pi / 2)

/// The middle value; of two, the lower one: the faster of two nodes is the usual one. 0 without values.
double lower_median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double absolute_deviation(std::vector<double> values, double center) {
  for (double& value : values) value = std::abs(value - center);
  return lower_median(std::move(values));
}

/// paired: divides every step by its mean over the ranks of the same work, which removes what is common to them, and
/// brings the long steps of one to the others. A rank is part of that mean, which makes its deviation from it smaller.
std::vector<RankWindow> rank_windows(std::span<const std::vector<double>> own_by_rank, const std::vector<int>& work,
                                     bool paired) {
  struct Peers {
    std::vector<double> sums;
    double ranks = 0;
  };
  std::map<int, Peers> by_work;
  for (std::size_t rank = 0; rank < own_by_rank.size(); ++rank) {
    Peers& peers = by_work[work[rank]];
    peers.sums.resize(own_by_rank[rank].size());
    ++peers.ranks;
    for (std::size_t step = 0; step < peers.sums.size(); ++step) peers.sums[step] += own_by_rank[rank][step];
  }
  std::vector<RankWindow> windows;
  for (std::size_t rank = 0; rank < own_by_rank.size(); ++rank) {
    const Peers& peers = by_work[work[rank]];
    std::vector<double> relative;
    for (std::size_t step = 0; step < peers.sums.size(); ++step)
      relative.push_back(own_by_rank[rank][step] * (!paired                ? 1
                                                    : peers.sums[step] > 0 ? peers.ranks / peers.sums[step]
                                                                           : 0));
    RankWindow window{.median = lower_median(relative)};
    const double part_of_mean = paired && peers.ranks > 1 ? peers.ranks / (peers.ranks - 1) : 1;
    const auto steps = static_cast<double>(relative.size());
    if (window.median > 0)
      window.error = normal_mad * absolute_deviation(std::move(relative), window.median) / window.median *
                     median_error * std::sqrt(part_of_mean / steps);
    windows.push_back(window);
  }
  return windows;
}

double usual_error(std::span<const RankWindow> by_rank) {
  std::vector<double> errors;
  for (const RankWindow& window : by_rank) errors.push_back(window.error);
  const auto middle = errors.begin() + static_cast<std::ptrdiff_t>(errors.size() / 2);  // of two, the larger one
  std::nth_element(errors.begin(), middle, errors.end());
  return *middle;
}

}  // namespace

StragglerScores::StragglerScores(std::vector<int> node_of_rank, std::vector<int> work_of_rank)
    : node_of_rank_(std::move(node_of_rank)), work_of_rank_(std::move(work_of_rank)) {
  for (const int node : node_of_rank_) nodes_ = std::max(nodes_, node + 1);
  recent_.resize(static_cast<std::size_t>(nodes_));
}

std::vector<Straggler> StragglerScores::add(std::span<const std::vector<double>> own_by_rank) {
  if (nodes_ < 2) return {};
  std::vector<RankWindow> by_rank = rank_windows(own_by_rank, work_of_rank_, true);
  if (std::vector<RankWindow> unpaired = rank_windows(own_by_rank, work_of_rank_, false);
      usual_error(unpaired) < usual_error(by_rank))
    by_rank = std::move(unpaired);
  ratios_ = node_ratios(by_rank);
  const double among_nodes = nodes_ < least_nodes ? 0 : normal_mad * absolute_deviation(ratios_, 1);
  const double error = usual_error(by_rank);
  error_ = error_ ? 0.75 * *error_ + 0.25 * error : error;
  const double spread = std::max<double>({among_nodes, std::sqrt(2.0) * error, std::sqrt(2.0) * *error_});
  const double threshold = 1 + std::max(least_excess, deviations * spread);
  std::vector<Straggler> found;
  for (std::size_t node = 0; node < ratios_.size(); ++node) {
    Recent& recent = recent_[node];
    if (recent.ratios.size() == last_windows) {
      recent.ratios.erase(recent.ratios.begin());
      recent.exceeded.erase(recent.exceeded.begin());
    }
    const bool was_straggler = recent.straggles();
    recent.ratios.push_back(ratios_[node]);
    recent.exceeded.push_back(ratios_[node] > threshold);
    if (recent.straggles() && !was_straggler)
      found.push_back({.node = static_cast<int>(node), .ratios = recent.ratios, .threshold = threshold});
  }
  return found;
}

std::vector<double> StragglerScores::node_ratios(std::span<const RankWindow> by_rank) const {
  std::map<int, std::vector<double>> by_work;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank)
    by_work[work_of_rank_[rank]].push_back(by_rank[rank].median);
  std::map<int, double> usual;
  for (auto& [work, medians] : by_work) usual[work] = lower_median(std::move(medians));
  std::vector<double> ratios(static_cast<std::size_t>(nodes_), 0);
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    double& ratio = ratios[static_cast<std::size_t>(node_of_rank_[rank])];
    const double peers = usual[work_of_rank_[rank]];
    ratio = std::max(ratio, peers > 0 ? by_rank[rank].median / peers : 1);
  }
  const double middle = lower_median(ratios);
  for (double& ratio : ratios) ratio = middle > 0 ? ratio / middle : 1;
  return ratios;
}

bool StragglerScores::Recent::straggles() const {
  return std::ranges::count(exceeded, true) >= static_cast<std::ptrdiff_t>(least_windows);
}

std::vector<int> StragglerScores::current() const {
  std::vector<int> nodes;
  for (std::size_t node = 0; node < recent_.size(); ++node)
    if (recent_[node].straggles()) nodes.push_back(static_cast<int>(node));
  return nodes;
}

std::optional<double> StragglerScores::highest_ratio() const {
  if (ratios_.empty()) return std::nullopt;
  return *std::ranges::max_element(ratios_);
}

std::string to_text(const Straggler& straggler, const std::string& node, int nodes, std::int64_t last_step) {
  std::vector<std::string> ratios;
  for (const double ratio : straggler.ratios) ratios.push_back(fmt::format("{:.2f}", ratio));
  const auto steps = static_cast<std::int64_t>(straggler.ratios.size() * StragglerScores::window_steps);
  return fmt::format(
      "node {} is a straggler: its own part of steps {} to {} takes {} times the median over {} nodes (by {} steps; "
      "threshold {:.2f}). Check its heat, clocks, shared cores and other jobs; trireme supervise --exclude-stragglers "
      "replaces it",
      node, last_step - steps + 1, last_step, join(ratios, ", "), nodes, StragglerScores::window_steps,
      straggler.threshold);
}

}  // namespace trireme::train
