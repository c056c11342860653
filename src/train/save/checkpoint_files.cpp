// SPDX-License-Identifier: Apache-2.0
#include "train/save/checkpoint_files.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/checkpoint/manifest.hpp"

namespace trireme::train {

std::string ranks_per_file_hint(const mesh::Mesh& storage, std::int64_t ranks_per_file, int node_ranks) {
  constexpr std::int64_t few = 1000;
  const std::int64_t files = checkpoint::files_of(storage, ranks_per_file);
  const std::int64_t of_node = std::min(std::max(1, node_ranks / storage.tensor), storage.dp_size());
  if (files <= few || of_node <= ranks_per_file) return "";
  return fmt::format(
      "a checkpoint has {} files in one directory, which a file system makes one by one: checkpoint.ranks_per_file = "
      "{}, the data-parallel ranks of a node, makes it {}",
      files, of_node, checkpoint::files_of(storage, of_node));
}

}  // namespace trireme::train
