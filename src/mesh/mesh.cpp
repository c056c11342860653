// SPDX-License-Identifier: Apache-2.0
#include "trireme/mesh/mesh.hpp"

#include <fmt/format.h>

#include "trireme/base/error.hpp"

namespace trireme::mesh {

std::string_view to_text(Axis axis) {
  switch (axis) {
    case Axis::replicate: return "replicate";
    case Axis::shard: return "shard";
    case Axis::tensor: return "tensor";
  }
  throw BugError("mesh: an axis outside of the enumeration");
}

namespace {

int& place(Coordinates& at, Axis axis) {
  switch (axis) {
    case Axis::replicate: return at.replicate;
    case Axis::shard: return at.shard;
    case Axis::tensor: return at.tensor;
  }
  throw BugError("mesh: an axis outside of the enumeration");
}

}  // namespace

int Mesh::size(Axis axis) const {
  switch (axis) {
    case Axis::replicate: return replicate;
    case Axis::shard: return shard;
    case Axis::tensor: return tensor;
  }
  throw BugError("mesh: an axis outside of the enumeration");
}

Coordinates Mesh::coordinates(Rank rank) const {
  invariant(rank.value >= 0 && rank.value < ranks(), "a rank lies within its mesh");
  return {
      .replicate = rank.value / (tensor * shard), .shard = rank.value / tensor % shard, .tensor = rank.value % tensor};
}

Rank Mesh::rank_of(const Coordinates& at) const {
  invariant(at.tensor >= 0 && at.tensor < tensor, "a tensor rank lies within its axis");
  return {dp_rank(at).value * tensor + at.tensor};
}

DpRank Mesh::dp_rank(const Coordinates& at) const {
  invariant(at.replicate >= 0 && at.replicate < replicate && at.shard >= 0 && at.shard < shard,
            "a data-parallel place lies within its mesh");
  return {at.replicate * shard + at.shard};
}

std::vector<Rank> Mesh::group(Axis axis, const Coordinates& at) const {
  std::vector<Rank> members;
  for (int i = 0; i < size(axis); ++i) {
    Coordinates member = at;
    place(member, axis) = i;
    members.push_back(rank_of(member));
  }
  return members;
}

std::vector<Rank> Mesh::dp_group(const Coordinates& at) const {
  std::vector<Rank> members;
  for (int r = 0; r < replicate; ++r) {
    for (int s = 0; s < shard; ++s) members.push_back(rank_of({.replicate = r, .shard = s, .tensor = at.tensor}));
  }
  return members;
}

std::string Mesh::text() const {
  return fmt::format("{}x{}x{} (replicate x shard x tensor)", replicate, shard, tensor);
}

}  // namespace trireme::mesh
