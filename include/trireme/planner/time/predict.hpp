// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/planner/choose.hpp"
#include "trireme/planner/time/simulate.hpp"

/// Predicted time of a step on one rank; the ranks of a pipeline differ, all others are alike.
namespace trireme::planner {

/// One step.
struct StepTime {
  double seconds = 0;
  double compute = 0;                           ///< of the compute lane, where nothing else runs
  double contention = 0;                        ///< slowdown by concurrent communication
  std::array<double, schedule::lanes> waits{};  ///< idle seconds of compute, by the lane it waits for
  std::array<double, schedule::lanes> busy{};   ///< seconds that each lane works
  std::array<double, 3> sent{};                 ///< bytes of one rank by Wire; none: copies to and from the host
  double fixed = 0;                             ///< the machine's step_ms
  /// Seconds that compute waits for collectives.
  [[nodiscard]] double exposed() const;
};

struct Prediction {
  StepTime expected;
  double fast = 0, slow = 0;  ///< seconds of a step at the network's p10 and p90, compute 5% faster and slower
  Memory memory;
  double tokens = 0;  ///< of one step and all ranks
  double mfu = 0;     ///< of the machine's peak, by model::flop_rule()
  int ranks = 1;
  config::Resolved mesh;
  [[nodiscard]] double tokens_per_second() const { return tokens / expected.seconds; }
};

class PlanCache;

struct PredictOptions {
  Software software{};
  bool percentiles = true;             ///< simulate the fast and the slow network, too
  bool few_layers = false;             ///< simulate and replay a few layers and extrapolate; for searches
  bool memory = true;                  ///< false: Prediction::memory stays empty
  PlanCache* cache = nullptr;          ///< of a search
  std::optional<int> pipeline_rank{};  ///< rank for predict_ops(); absent: that with the longest compute
};

/// Predicts a step of `config` on `ranks` ranks. All ranks do the same, so one is simulated, or one of every pipeline
/// rank; microbatches after the fourth, or after four for every pipeline rank, repeat those before. Times are those of
/// the pipeline rank that computes longest; all end together. `config`: complete, `sync.policy` resolved.
[[nodiscard]] Prediction predict(const config::RunConfig& config, int ranks, const Machine& machine,
                                 const PredictOptions& options = {});

/// For choose_sync(): a few layers of each step, simulated on `machine`.
[[nodiscard]] StepPredictor step_seconds_on(const Machine& machine, int ranks);

/// Bytes of one rank, in a pipeline of the rank with the most. `few_layers`: replays a few layers and extrapolates each
/// op that is a peak among them. Exact if one of these ops is the peak of all layers, else up to some percent too low.
[[nodiscard]] Memory predict_memory(const config::RunConfig& config, const config::Resolved& mesh,
                                    bool few_layers = false, PlanCache* cache = nullptr);

/// A step with at most four microbatches, or three for every pipeline rank, op by op, and every op's terms.
struct PredictedStep {
  std::shared_ptr<const model::Model> model;
  schedule::Schedule schedule;
  std::vector<Cost> costs;
  std::vector<std::vector<Term>> terms;
  Timeline timeline;
  int pipeline_rank = 0;
};
[[nodiscard]] PredictedStep predict_ops(const config::RunConfig& config, int ranks, const Machine& given,
                                        const PredictOptions& options = {});

/// Work of the owners of Muon's matrices, and its part of a step; "" without Muon, and of a pipeline, whose ranks have
/// other matrices each (--show time lists their ops).
[[nodiscard]] std::string owners_text(const config::RunConfig& config, const Prediction& prediction,
                                      const Machine& machine);
/// One line: whether it fits, model, mesh, tokens per second, MFU, memory of a rank and host memory of a node with
/// their limits (fit_of()). `config`: of the prediction.
[[nodiscard]] std::string verdict_text(const config::RunConfig& config, const Prediction& prediction,
                                       const Machine& machine);

/// One line: buffers of the ranks of a node in host memory, and the node's memory.
[[nodiscard]] std::string host_memory_text(const Memory& memory, const config::Resolved& mesh, const Machine& machine);

/// Step time, its parts, tokens per second, MFU, memory; how far to trust it.
[[nodiscard]] std::string to_text(const Prediction& prediction, const Machine& machine);

struct ScalingTable {
  int rows = 0;
  std::string text;
};
/// A row for each number of ranks: tokens per second, efficiency relative to the fewest ranks, exposed communication,
/// memory. Rank counts that do not fit the run file are listed below with the reason. `given`: complete; an automatic
/// `sync.policy` is resolved for each number.
[[nodiscard]] ScalingTable scaling_table(const config::RunConfig& given, const std::vector<int>& ranks,
                                         const Machine& machine);

/// Every term of an op's time with formula and numbers: one op for each kind and block shape, with how many there are.
[[nodiscard]] std::string explain_time(const PredictedStep& step);

/// The step as a Chrome trace: a row a lane, the same names and row numbers as a measured one.
[[nodiscard]] std::string predicted_trace(const PredictedStep& step);

}  // namespace trireme::planner
