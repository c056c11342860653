// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "trireme/device/graphs.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/nn/stage.hpp"
#include "trireme/schedule/needs.hpp"
#include "trireme/schedule/op.hpp"

namespace trireme::executor {

/// The graphs of a schedule: the launches of the compute lane, recorded in the second step and replayed segment by
/// segment in later ones. The first step initializes the kernels (plans, workspaces). Compute lane only.
class RecordedGraphs {
 public:
  RecordedGraphs(const schedule::Schedule& schedule, const std::vector<schedule::Need>& needs,
                 std::shared_ptr<device::Graphs> graphs);

  static constexpr std::int64_t recording_step = 1;
  /// The segment that op `op` is in, to be launched as one; null if ops are launched by themselves.
  [[nodiscard]] const std::vector<int>* segment_of(int op, std::int64_t step) const;
  /// Launches a segment. run_op: runs one of its ops, to be recorded.
  void launch(const std::vector<int>& segment, const std::function<void(int op)>& run_op);

  /// The same tokens in tensors that are there as long as the graphs, which have read them.
  [[nodiscard]] std::span<const nn::Microbatch> kept(std::span<const nn::Microbatch> microbatches);
  /// The loss summed by the graphs on a GPU; undefined until they are recorded.
  [[nodiscard]] const at::Tensor& loss() const { return loss_; }

  /// Before and after a step. loss: where that step has summed it.
  void begin(std::int64_t step);
  void end(std::int64_t step, const at::Tensor& loss);

 private:
  std::shared_ptr<device::Graphs> graphs_;
  std::vector<std::vector<int>> segments_;
  std::vector<int> segment_of_;               ///< by op; -1: launched separately
  std::vector<int> graph_of_;                 ///< by segment; -1: not recorded yet
  std::vector<nn::Microbatch> microbatches_;  ///< inputs of the graphs
  at::Tensor loss_;
  device::Charge memory_;
};

}  // namespace trireme::executor
