// SPDX-License-Identifier: Apache-2.0
#include "train/record/step_times.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>

#include "trireme/mpi/gather.hpp"

namespace trireme::train {
namespace {

constexpr double shortest_seconds = 20e-6;
constexpr double buckets_per_doubling = 4;
// Below that, ranks that share cores take turns at being slow.
constexpr double straggler_ratio = 1.5;

}  // namespace

double StepTimes::upper_seconds(int bucket) { return shortest_seconds * std::exp2(bucket / buckets_per_doubling); }

void StepTimes::add(double own_seconds) {
  const double place = std::ceil(buckets_per_doubling * std::log2(std::max(own_seconds, 1e-9) / shortest_seconds));
  ++counts_[static_cast<std::size_t>(std::clamp(place, 0.0, buckets - 1.0))];
}

std::uint32_t StepTimes::steps() const { return std::accumulate(counts_.begin(), counts_.end(), 0U); }

double StepTimes::quantile(double share) const {
  const double wanted = std::max(1.0, std::ceil(share * steps()));
  double seen = 0;
  for (int i = 0; i < buckets; ++i) {
    seen += counts_[static_cast<std::size_t>(i)];
    if (seen >= wanted) return upper_seconds(i);
  }
  return 0;
}

std::vector<StepTimes> StepTimes::gather(const mpi::Communicator& communicator, const StepTimes& mine) {
  std::string bytes(sizeof(mine.counts_), '\0');
  std::memcpy(bytes.data(), mine.counts_.data(), bytes.size());
  std::vector<StepTimes> by_rank;
  for (const std::string& theirs : mpi::gather_texts(communicator, bytes))
    std::memcpy(by_rank.emplace_back().counts_.data(), theirs.data(), theirs.size());
  return by_rank;
}

bool Slowest::straggles() const { return median_seconds > straggler_ratio * usual_seconds; }

std::optional<Slowest> slowest(const std::vector<StepTimes>& by_rank) {
  std::vector<double> medians;
  for (const StepTimes& times : by_rank) medians.push_back(times.quantile(0.5));
  if (medians.empty()) return std::nullopt;
  const auto longest = std::max_element(medians.begin(), medians.end());
  Slowest found{.rank = static_cast<int>(longest - medians.begin()), .median_seconds = *longest};
  if (found.median_seconds == 0) return std::nullopt;
  // With two ranks, the faster one counts as usual.
  const auto middle = medians.begin() + static_cast<std::ptrdiff_t>((medians.size() - 1) / 2);
  std::nth_element(medians.begin(), middle, medians.end());
  found.usual_seconds = *middle;
  return found;
}

std::string to_text(const Slowest& slowest, const RankName& name) {
  return fmt::format(
      "{} is a straggler: its own part of a step takes {:.3g} s, the median over ranks is {:.3g} s. Check "
      "its node (shared cores, heat, disk, another job); step_times.json shows every rank.",
      name(slowest.rank), slowest.median_seconds, slowest.usual_seconds);
}

std::string to_json(const std::vector<StepTimes>& by_rank, const RankName& name) {
  using Json = nlohmann::ordered_json;
  Json ranks = Json::array();
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const StepTimes& times = by_rank[rank];
    Json histogram = Json::array();
    for (int i = 0; i < StepTimes::buckets; ++i)
      if (const std::uint32_t steps = times.counts()[static_cast<std::size_t>(i)]; steps > 0)
        histogram.push_back({{"upper_seconds", StepTimes::upper_seconds(i)}, {"steps", steps}});
    ranks.push_back({{"rank", rank},
                     {"name", name(static_cast<int>(rank))},
                     {"steps", times.steps()},
                     {"median_seconds", times.quantile(0.5)},
                     {"p95_seconds", times.quantile(0.95)},
                     {"max_seconds", times.quantile(1)},
                     {"histogram", std::move(histogram)}});
  }
  Json out;
  out["meaning"] = "own part of a step by rank, without waiting for other ranks; times to a bucket's upper end";
  const std::optional<Slowest> found = slowest(by_rank);
  out["slowest"] = found ? Json(name(found->rank)) : Json(nullptr);
  out["ranks"] = std::move(ranks);
  return out.dump(1) + "\n";
}

}  // namespace trireme::train
