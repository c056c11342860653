// SPDX-License-Identifier: Apache-2.0
#include "executor/recorded_graphs.hpp"

#include <utility>

#include "executor/segments.hpp"
#include "trireme/base/error.hpp"

namespace trireme::executor {

RecordedGraphs::RecordedGraphs(const schedule::Schedule& schedule, const std::vector<schedule::Need>& needs,
                               std::shared_ptr<device::Graphs> graphs)
    : graphs_(std::move(graphs)),
      segments_(segments(schedule, needs)),
      segment_of_(schedule.ops.size(), -1),
      graph_of_(segments_.size(), -1) {
  for (std::size_t i = 0; i < segments_.size(); ++i)
    for (const int op : segments_[i]) segment_of_[static_cast<std::size_t>(op)] = static_cast<int>(i);
}

const std::vector<int>* RecordedGraphs::segment_of(int op, std::int64_t step) const {
  if (step < recording_step) return nullptr;
  const int segment = segment_of_[static_cast<std::size_t>(op)];
  return segment < 0 ? nullptr : &segments_[static_cast<std::size_t>(segment)];
}

void RecordedGraphs::launch(const std::vector<int>& segment, const std::function<void(int op)>& run_op) {
  int& graph = graph_of_[static_cast<std::size_t>(segment_of_[static_cast<std::size_t>(segment.front())])];
  if (graph < 0)
    graph = graphs_->record([&] {
      for (const int op : segment) run_op(op);
    });
  graphs_->launch(graph);
}

std::span<const nn::Microbatch> RecordedGraphs::kept(std::span<const nn::Microbatch> microbatches) {
  const device::ChargeTo charge(device::Category::data);
  const bool first = microbatches_.empty();
  if (first) microbatches_.assign(microbatches.begin(), microbatches.end());
  for (std::size_t i = 0; i < microbatches.size(); ++i) {
    nn::Microbatch& here = microbatches_[i];
    const nn::Microbatch& now = microbatches[i];
    invariant(here.batch == now.batch && here.seq_len == now.seq_len && here.loss_scale == now.loss_scale &&
                  here.z_loss == now.z_loss && !now.document_begin.defined(),
              "graphs take microbatches of one shape, with one factor of the loss");
    if (first) {
      here.inputs = now.inputs.clone();
      here.targets = now.targets.clone();
    } else {
      here.inputs.copy_(now.inputs, /*non_blocking=*/true);
      here.targets.copy_(now.targets, /*non_blocking=*/true);
    }
  }
  return microbatches_;
}

void RecordedGraphs::begin(std::int64_t step) {
  if (step == recording_step) graphs_->make_room();
}

void RecordedGraphs::end(std::int64_t step, const at::Tensor& loss) {
  if (step != recording_step) return;
  loss_ = loss;
  memory_ = device::Charge::of_gpu(device::Category::activations, graphs_->memory());
}

}  // namespace trireme::executor
