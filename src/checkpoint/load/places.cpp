// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/load/places.hpp"

#include <algorithm>

namespace trireme::checkpoint {

bool may_overlap(const shard::Hyperslab& a, const shard::Hyperslab& b) {
  if (a.first >= b.end() || b.first >= a.end()) return false;
  if (a.count == 1 || b.count == 1 || a.stride != b.stride) return true;
  const std::int64_t column_of_a = a.first % a.stride, column_of_b = b.first % b.stride;
  return column_of_a < column_of_b + b.length && column_of_b < column_of_a + a.length;
}

Places::Places(const Manifest& manifest)
    : parameters_(manifest.parameters.size()), lists_(all_quantities.size() * parameters_) {
  for (const SavedFile& file : manifest.files)
    for (const SavedDataset& dataset : file.datasets)
      for (const SavedSlice& slice : dataset.slices)
        lists_[static_cast<std::size_t>(dataset.quantity) * parameters_ + static_cast<std::size_t>(slice.parameter)]
            .push_back({&file, &dataset, &slice, 0});
  for (auto& list : lists_) {
    std::sort(list.begin(), list.end(),
              [](const Place& a, const Place& b) { return a.slice->hyperslab.first < b.slice->hyperslab.first; });
    std::int64_t end = 0;
    for (Place& place : list) place.end = end = std::max(end, place.slice->hyperslab.end());
  }
}

std::vector<Place> Places::of(Quantity quantity, int parameter, const shard::Hyperslab& elements) const {
  const std::vector<Place>& list =
      lists_[static_cast<std::size_t>(quantity) * parameters_ + static_cast<std::size_t>(parameter)];
  const auto first =
      std::partition_point(list.begin(), list.end(), [&](const Place& place) { return place.end <= elements.first; });
  std::vector<Place> found;
  for (auto it = first; it != list.end() && it->slice->hyperslab.first < elements.end(); ++it)
    if (may_overlap(it->slice->hyperslab, elements)) found.push_back(*it);
  return found;
}

}  // namespace trireme::checkpoint
