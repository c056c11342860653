// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trireme/config/run_config.hpp"
#include "trireme/mpi/communicator.hpp"

namespace trireme::train {

/// A file that ranks of a run open by its path, each on its own node; `no_tokens`, `no_weights`: one that rank 0 lacks,
/// and that would change what a rank reads.
struct InputPath {
  enum class Kind : std::uint8_t { tokens, weights, questions, no_tokens, no_weights };
  Kind kind = Kind::tokens;
  std::string path;
  friend bool operator==(const InputPath&, const InputPath&) = default;
};

/// Token files of training and validation with their indexes, masks and sidecars, then config.json and the weight files
/// of a Hugging Face directory in `model.from`. Checkpoints are not listed: their shards have checksums. For one rank.
/// Throws DataError, CheckpointError.
[[nodiscard]] std::vector<InputPath> input_paths(const config::RunConfig& config);

/// A list of paths as text, to be broadcast, and back.
[[nodiscard]] std::string encode(const std::vector<InputPath>& inputs);
[[nodiscard]] std::vector<InputPath> decode_inputs(const std::string& text);

/// Size of a file and a hash of sampled blocks.
struct FileDigest {
  std::int64_t bytes = 0;
  std::uint64_t hash = 0;
  friend bool operator==(const FileDigest&, const FileDigest&) = default;
};

/// Reads at most `blocks` blocks of 16 KiB, and the whole header of a safetensors file; of a file that rank 0 lacks,
/// whether it is there. after_block: called when one
/// has been read. Throws CheckpointError for weights, DataError for others.
[[nodiscard]] FileDigest digest_of(const InputPath& input, std::int64_t blocks,
                                   const std::function<void()>& after_block = {});

/// Blocks to sample in each of `files` files: 256, fewer from 17 files on, at least 16.
[[nodiscard]] std::int64_t blocks_of_each(std::int64_t files);

/// Describes how a rank's copy of a file differs from the first rank's; empty when they are equal.
[[nodiscard]] std::string copy_mismatch(const InputPath& input, const FileDigest& here, const FileDigest& first_rank);

/// Compares files across nodes: ranks that see the same files share the reading. Throws CollectiveError (exit code 3 or
/// 4) naming rank, node and file where a rank's copy differs from rank 0's, cannot be read, or is one that rank 0
/// lacks. While any rank reads on, `mark` is called on every rank several times in `timeout_seconds`.
/// inputs: equal on all ranks. Collective over `world`, the whole job.
void agree_on_input_files(const mpi::Communicator& world, const std::vector<InputPath>& inputs, double timeout_seconds,
                          const std::function<void()>& mark);

}  // namespace trireme::train
