// SPDX-License-Identifier: Apache-2.0
#include "trireme/mesh/mesh.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "trireme/base/error.hpp"

namespace trireme::mesh {

const AxisRow& row_of(Axis axis) {
  const auto found = std::ranges::find(axes, axis, &AxisRow::axis);
  invariant(found != axes.end(), "mesh: every axis has a row");
  return *found;
}

std::string_view to_text(Axis axis) { return row_of(axis).name; }

int Mesh::ranks() const {
  int product = 1;
  for (const AxisRow& row : axes) product *= this->*row.size;
  return product;
}

int Mesh::size(Axis axis) const { return this->*row_of(axis).size; }

int Mesh::size(Axes along) const {
  int product = 1;
  for (const AxisRow& row : axes)
    if (along.has(row.axis)) product *= this->*row.size;
  return product;
}

int Mesh::stride(Axis axis) const {
  int product = 1;
  for (auto row = axes.rbegin(); row->axis != axis; ++row) product *= this->*row->size;
  return product;
}

Coordinates Mesh::coordinates(Rank rank) const {
  invariant(rank.value >= 0 && rank.value < ranks(), "a rank lies within its mesh");
  Coordinates at;
  int rest = rank.value;
  for (const auto& row : std::views::reverse(axes)) {
    at.*row.place = rest % (this->*row.size);
    rest /= this->*row.size;
  }
  return at;
}

Rank Mesh::rank_of(const Coordinates& at) const {
  int rank = 0;
  for (const AxisRow& row : axes) {
    const int place = at.*row.place, size = this->*row.size;
    invariant(place >= 0 && place < size, fmt::format("{} rank {} lies within an axis of {}", row.name, place, size));
    rank = rank * size + place;
  }
  return {rank};
}

DpRank Mesh::dp_rank(const Coordinates& at) const {
  invariant(at.replicate >= 0 && at.replicate < replicate && at.shard >= 0 && at.shard < shard,
            "a data-parallel place lies within its mesh");
  return {at.replicate * shard + at.shard};
}

Mesh Mesh::of_storage() const {
  Mesh folded = *this;
  folded.shard = shards();
  folded.context = 1;
  folded.expert = 1;
  return folded;
}

std::vector<Rank> Mesh::group(Axes along, const Coordinates& at) const {
  std::vector<Rank> members{Rank{0}};
  for (const AxisRow& row : axes) {
    const int size = this->*row.size;
    const bool all = along.has(row.axis);
    std::vector<Rank> longer;
    for (const Rank member : members)
      for (int place = all ? 0 : at.*row.place, end = all ? size : place + 1; place < end; ++place)
        longer.push_back({member.value * size + place});
    members = std::move(longer);
  }
  return members;
}

std::string Mesh::text() const {
  std::string sizes, names;
  for (const AxisRow& row : axes) {
    const int size = this->*row.size;
    if (!row.always_shown && size == 1) continue;
    sizes += fmt::format("{}{}", sizes.empty() ? "" : "x", size);
    names += fmt::format("{}{}", names.empty() ? "" : " x ", row.name);
  }
  return fmt::format("{} ({}){}", sizes, names, expert > 1 ? fmt::format(", expert {}", expert) : "");
}

std::string Mesh::short_text() const {
  return fmt::format("{}{} x {} x {}", context > 1 ? fmt::format("context {}: ", context) : "", replicate, shard,
                     tensor);
}

}  // namespace trireme::mesh
