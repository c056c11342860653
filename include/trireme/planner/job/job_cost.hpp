// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/planner/time/predict.hpp"

/// Cost of a whole training: steps, evaluations, checkpoints and failures.
namespace trireme::planner {

/// "2T", "15.6B", "300M", "1e12": a number of tokens. Throws ConfigError.
[[nodiscard]] double parse_tokens(std::string_view text);

/// Seconds that maximize progress between saves that stop the job for `save` seconds where it fails every `mtbf`
/// seconds: Daly, A higher order estimate of the optimum checkpoint interval, 2006.
[[nodiscard]] double daly_interval(double save, double mtbf);

/// Cost of a save.
struct SaveCost {
  double bytes = 0;    ///< masters and both moments, written once
  double stopped = 0;  ///< seconds without training: the copy with checkpoint.async, else the writing
  double written = 0;  ///< seconds until it is complete
};

struct JobCost {
  double tokens = 0;
  Prediction step;
  double steps = 0;
  double training = 0, evaluation = 0, saves = 0;  ///< seconds
  bool evaluates_all = false;                      ///< train.eval_steps = 0: of unknown length, not counted
  SaveCost save;
  double mtbf = 0;               ///< seconds between failures of the job; 0: unknown
  double failures = 0;           ///< expected
  double lost = 0;               ///< seconds: restarts, loading, steps computed again
  std::int64_t every = 0;        ///< steps between saves that is counted with: the run file's, else the suggested
  std::int64_t suggested = 0;    ///< 0: no failure rate or no storage bandwidth is known
  double suggested_seconds = 0;  ///< of the whole job with the suggested interval
  std::int64_t most = 0;         ///< the largest interval, in steps, that makes the job at most 1% longer than that
  [[nodiscard]] double seconds() const { return training + evaluation + saves + lost; }
};

/// Predicts the job of `config` on `ranks` ranks until it has seen `tokens` tokens. `config`: complete, `sync.policy`
/// resolved. Throws ConfigError if failures are more frequent than progress.
[[nodiscard]] JobCost job_cost(const config::RunConfig& config, int ranks, const Machine& machine, double tokens);

[[nodiscard]] std::string to_text(const JobCost& cost, const Machine& machine);

}  // namespace trireme::planner
