// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/planner/time/fit.hpp"
#include "trireme/planner/time/predict.hpp"

/// Searches the mesh, batch, policies and memory settings with the fastest predicted step on a machine.
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
  NodeMemory host;
  std::string bound_by;  ///< the one limit that costs most: "compute", "memory 18%", "reduce lane 12%"
};

struct SearchResult {
  std::int64_t candidates = 0;  ///< all combinations
  std::int64_t refused = 0;     ///< that the model, the batch or another key rules out
  std::int64_t too_large = 0;
  std::int64_t too_large_for_host = 0;  ///< fit the GPU's memory, but not the host's
  std::int64_t outdone = 0;             ///< not simulated: the same with less recompute or offload fits
  std::int64_t simulated = 0;
  Bytes limit;                      ///< of a rank's buffers
  std::optional<Bytes> host_limit;  ///< of a node's ranks in host memory; nothing: unknown
  Found given;                      ///< the unchanged run file; it may not fit
  Fit given_fit{};
  std::vector<Found> best;  ///< the fastest first; the run file itself where it is
};

/// The reason for an empty `best`, and remedies.
[[nodiscard]] std::string nothing_fits_text(const SearchResult& result);

/// Tries tensor and shard sizes, microbatches, sync policies with reshard settings, recompute and offload. Settings
/// that affect training results, such as the global batch, are kept. `config`: complete, `sync.policy` resolved.
[[nodiscard]] SearchResult search(const config::RunConfig& config, int ranks, const Machine& machine,
                                  const SearchOptions& options = {});

/// A table of the best candidates, the tried ones, the unchanged run file, and the keys that the best changes.
[[nodiscard]] std::string to_text(const SearchResult& result);

}  // namespace trireme::planner
