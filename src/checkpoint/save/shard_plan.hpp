// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/checkpoint/manifest.hpp"
#include "trireme/checkpoint/save/save.hpp"

namespace trireme::checkpoint {

/// Consecutive dp ranks, at one tensor rank, that write one file. Every writer computes the same result without
/// communication.
struct Writers {
  int first = 0;  ///< dp rank; the file bears its name
  int count = 1;
};
/// The writers of the file of dp rank `dp_rank`: groups of `ranks_per_file` from dp rank 0 on; the last one may be
/// smaller.
[[nodiscard]] Writers writers_of(const mesh::Mesh& mesh, int dp_rank, std::int64_t ranks_per_file);

/// A rank's part of a dataset.
struct PlannedPart {
  int dp_rank = 0;
  std::int64_t begin = 0;   ///< of its first element, in the rank's shard
  std::int64_t offset = 0;  ///< of the same element, in the dataset
  std::size_t first_slice = 0, end_slice = 0;
};

/// A dataset to be written: the parts of all writers end to end, in the order of their ranks.
struct PlannedDataset {
  SavedDataset dataset;  ///< with all slices, checksums and byte offset not known yet
  ParamBlock block{0};
  std::vector<PlannedPart> parts;
};

/// Datasets of a file, in closed form: every writer computes the same result. Parts that are padding only are left out,
/// and datasets without parts.
[[nodiscard]] std::vector<PlannedDataset> plan_file(const Shards& shards, const Writers& writers);

}  // namespace trireme::checkpoint
