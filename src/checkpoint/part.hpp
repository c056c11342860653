// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/checkpoint/manifest.hpp"

namespace trireme::checkpoint {

/// Elements of a parameter that a rank reads.
struct Piece {
  int parameter = 0;  ///< index in Manifest::parameters
  shard::Hyperslab hyperslab;
};

/// Kinds of reads.
enum class Reads {
  training_state,  ///< its shards of parameters and moments
  parameters,      ///< its shards of parameters
  first_values,    ///< of parameters only; those that are transposed in Hugging Face's files as a whole
};

/// The subset of a manifest that a rank needs.
struct Request {
  std::vector<Piece> pieces;
  bool moments = false;         ///< of the moments, too
  std::int64_t digest_of = -1;  ///< rank of the mesh that saved; -1: of none
};

/// Answer to a Request.
struct Part {
  std::vector<SavedFile> files;         ///< of each the slices that the rank reads
  std::uint64_t digest = 0;             ///< that of Request::digest_of
  std::uint64_t digest_of_replica = 0;  ///< sum of the digests of all that the mesh's first replica held
};

}  // namespace trireme::checkpoint
