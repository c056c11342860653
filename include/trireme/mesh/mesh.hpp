// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/ids.hpp"

/// The ranks of a job as a mesh of parallelism axes. Independent of MPI.
namespace trireme::mesh {

/// The axes in the order of world ranks, the slowest first: neighbours in a node are tensor ranks, pipeline ranks are
/// far apart. A new axis is a value here, a member of Coordinates and of Mesh, and a row of `axes`.
enum class Axis { pipeline, replicate, shard, context, tensor };
[[nodiscard]] std::string_view to_text(Axis axis);

/// A rank's place on every axis.
struct Coordinates {
  int pipeline = 0;
  int replicate = 0;
  int shard = 0;
  int context = 0;
  int tensor = 0;
  friend bool operator==(const Coordinates&, const Coordinates&) = default;
};

/// A set of axes.
class Axes {
 public:
  constexpr Axes(Axis axis) : bits_(1U << static_cast<unsigned>(axis)) {}
  constexpr Axes(std::initializer_list<Axis> several) {
    for (const Axis axis : several) bits_ |= 1U << static_cast<unsigned>(axis);
  }
  [[nodiscard]] constexpr bool has(Axis axis) const { return (bits_ >> static_cast<unsigned>(axis) & 1U) != 0; }

 private:
  unsigned bits_ = 0;
};

/// Sizes of the axes; each at least 1.
struct Mesh {
  int pipeline = 1;
  int replicate = 1;
  int shard = 1;
  int context = 1;
  int tensor = 1;
  /// Neighbours among the ranks of a fold (shard x context x tensor) that divide the experts of every layer: no axis of
  /// its own (MoE Parallel Folding, Liu et al. 2025).
  int expert = 1;

  [[nodiscard]] int ranks() const;
  [[nodiscard]] int dp_size() const { return replicate * shard; }
  /// Ranks over which parameters are sharded: context ranks hold the same ones, so they share their storage, too.
  [[nodiscard]] int shards() const { return shard * context; }
  /// Index of a rank's shard.
  [[nodiscard]] int shard_of(const Coordinates& at) const { return at.shard * context + at.context; }
  /// Index of a rank's part of the experts: neighbours have different ones.
  [[nodiscard]] int expert_rank(const Coordinates& at) const { return (shard_of(at) * tensor + at.tensor) % expert; }
  /// The same ranks in the same order as parameters and checkpoints see them: context ranks are shard ranks.
  [[nodiscard]] Mesh of_storage() const;
  [[nodiscard]] int size(Axis axis) const;
  /// The number of ranks of a group along some axes: the product of their sizes.
  [[nodiscard]] int size(Axes along) const;
  /// Distance of neighbours along `axis`, in world ranks: the product of the sizes of the faster axes.
  [[nodiscard]] int stride(Axis axis) const;

  /// The place of `rank` (0 <= rank < ranks()).
  [[nodiscard]] Coordinates coordinates(Rank rank) const;
  /// The inverse of `coordinates`.
  [[nodiscard]] Rank rank_of(const Coordinates& at) const;
  /// The corrected global data-parallel rank, replicate_rank * shard_size + shard_rank: the only place it is computed.
  [[nodiscard]] DpRank dp_rank(const Coordinates& at) const;
  /// The ranks that differ from `at` along these axes only, in the order of world ranks.
  [[nodiscard]] std::vector<Rank> group(Axes along, const Coordinates& at) const;

  /// "2x4x1 (replicate x shard x tensor)". An axis that most runs do not have is shown if it is larger than 1, and
  /// so is "expert 2" after them.
  [[nodiscard]] std::string text() const;
  /// "2 x 4 x 1": replicate x shard x tensor; "context 2: 2 x 4 x 1" where sequences are divided.
  [[nodiscard]] std::string short_text() const;
  friend bool operator==(const Mesh&, const Mesh&) = default;
};

/// One axis: its name, and where its numbers are.
struct AxisRow {
  Axis axis;
  std::string_view name;
  int Mesh::*size;
  int Coordinates::*place;
  bool always_shown;
};

/// Every axis, in the order of world ranks.
inline constexpr std::array axes{
    AxisRow{Axis::pipeline, "pipeline", &Mesh::pipeline, &Coordinates::pipeline, false},
    AxisRow{Axis::replicate, "replicate", &Mesh::replicate, &Coordinates::replicate, true},
    AxisRow{Axis::shard, "shard", &Mesh::shard, &Coordinates::shard, true},
    AxisRow{Axis::context, "context", &Mesh::context, &Coordinates::context, false},
    AxisRow{Axis::tensor, "tensor", &Mesh::tensor, &Coordinates::tensor, true},
};

[[nodiscard]] const AxisRow& row_of(Axis axis);

}  // namespace trireme::mesh
