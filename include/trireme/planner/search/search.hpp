// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/planner/time/predict.hpp"

/// Which mesh, batch, policies and memory settings make a run fastest on a machine.
namespace trireme::planner {

struct SearchProgress {
  std::int64_t candidates = 0, done = 0, simulated = 0;
  double tokens_per_second = 0;  ///< of the best so far
};

struct SearchOptions {
  std::size_t keep = 10;
  std::function<void(const SearchProgress&)> progress = {};  ///< called often, by one thread at a time
};

/// A candidate that fits.
struct Found {
  config::RunConfig config;
  Prediction prediction;
  std::string bound_by;  ///< the one limit that costs most: "compute", "memory 18%", "reduce lane 12%"
};

struct SearchResult {
  std::int64_t candidates = 0;  ///< all combinations
  std::int64_t refused = 0;     ///< that the model, the batch or another key rules out
  std::int64_t too_large = 0;
  std::int64_t outdone = 0;  ///< not simulated: the same with less recompute or offload fits
  std::int64_t simulated = 0;
  Bytes limit;              ///< that a rank may need
  Found given;              ///< the run file as it is; it may not fit
  std::vector<Found> best;  ///< the fastest first
};

/// What a rank's buffers may take: memory.budget, else 90% of the GPU's memory. The rest is for what is not counted:
/// the CUDA context, NCCL's buffers, libtorch's workspace.
[[nodiscard]] Bytes memory_limit(const config::RunConfig& config, const Machine& machine);

/// Tries tensor and shard sizes, microbatches, sync policies with what they keep gathered, recompute and offload; the
/// global batch, and all that changes what is learned, stay as they are. `config`: complete, `sync.policy` resolved.
[[nodiscard]] SearchResult search(const config::RunConfig& config, int ranks, const Machine& machine,
                                  const SearchOptions& options = {});

/// The best as a table, what was tried, the run file as it is, and the keys that the best changes.
[[nodiscard]] std::string to_text(const SearchResult& result);

}  // namespace trireme::planner
