// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/ids.hpp"

/// Who sits where: the world's ranks as replicate x shard x tensor. Tensor varies fastest (neighbours in a node), then
/// shard, then replicate. Nothing here knows MPI.
namespace trireme::mesh {

enum class Axis { replicate, shard, tensor };
[[nodiscard]] std::string_view to_text(Axis axis);

struct Coordinates {
  int replicate = 0;
  int shard = 0;
  int tensor = 0;
  friend bool operator==(const Coordinates&, const Coordinates&) = default;
};

/// Sizes of the three axes; each at least 1.
struct Mesh {
  int replicate = 1;
  int shard = 1;
  int tensor = 1;

  [[nodiscard]] int ranks() const { return replicate * shard * tensor; }
  [[nodiscard]] int dp_size() const { return replicate * shard; }
  [[nodiscard]] int size(Axis axis) const;

  /// Where `rank` (0 <= rank < ranks()) sits.
  [[nodiscard]] Coordinates coordinates(Rank rank) const;
  /// The inverse of `coordinates`.
  [[nodiscard]] Rank rank_of(const Coordinates& at) const;
  /// The corrected global data-parallel rank, replicate_rank * shard_size + shard_rank: the only place it is computed.
  [[nodiscard]] DpRank dp_rank(const Coordinates& at) const;
  /// The ranks that differ from `at` along `axis` only, by their place on it.
  [[nodiscard]] std::vector<Rank> group(Axis axis, const Coordinates& at) const;
  /// The ranks of the whole data-parallel group (replicate x shard at one tensor rank), by dp rank.
  [[nodiscard]] std::vector<Rank> dp_group(const Coordinates& at) const;

  /// "2x4x1 (replicate x shard x tensor)".
  [[nodiscard]] std::string text() const;
  friend bool operator==(const Mesh&, const Mesh&) = default;
};

}  // namespace trireme::mesh
