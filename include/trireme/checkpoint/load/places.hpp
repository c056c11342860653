// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/checkpoint/manifest.hpp"
#include "trireme/shard/hyperslab.hpp"

namespace trireme::checkpoint {

/// Whether two pieces of one parameter may have an element in common; false: they have none.
[[nodiscard]] bool may_overlap(const shard::Hyperslab& a, const shard::Hyperslab& b);

/// Location of a slice.
struct Place {
  const SavedFile* file;
  const SavedDataset* dataset;
  const SavedSlice* slice;
  std::int64_t end;  ///< one past the last element of this slice and of all before it in its list
  friend bool operator==(const Place&, const Place&) = default;
};

/// The slices of a manifest by quantity and parameter: in O(log n) steps those that hold a piece. Points into the
/// manifest's files.
class Places {
 public:
  explicit Places(const Manifest& manifest);

  /// Places that may hold elements of `elements`, by their first element. parameter: index in Manifest::parameters.
  [[nodiscard]] std::vector<Place> of(Quantity quantity, int parameter, const shard::Hyperslab& elements) const;

 private:
  std::size_t parameters_;
  std::vector<std::vector<Place>> lists_;  ///< [quantity][parameter], by first element
};

}  // namespace trireme::checkpoint
