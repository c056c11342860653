// SPDX-License-Identifier: Apache-2.0
#include "trireme/executor/executor.hpp"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>
#include <variant>

#include "executor/recorded_graphs.hpp"
#include "executor/verbs.hpp"
#include "trireme/base/error.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/mpi/abort.hpp"
#include "trireme/schedule/access.hpp"

namespace trireme::executor {
namespace {

/// Needs of the host's launches: those of the lanes, and each collective waits for the previous one.
std::vector<schedule::Need> launch_needs(const schedule::Schedule& schedule, std::vector<schedule::Need> needs) {
  std::vector<int> collectives;
  for (int op = 0; op < static_cast<int>(schedule.ops.size()); ++op) {
    const schedule::Lane lane = schedule::lane_of(schedule.ops[static_cast<std::size_t>(op)]);
    if (lane == schedule::Lane::gather || lane == schedule::Lane::reduce || lane == schedule::Lane::tensor ||
        lane == schedule::Lane::context || lane == schedule::Lane::expert || lane == schedule::Lane::send ||
        lane == schedule::Lane::receive)
      collectives.push_back(op);
  }
  for (std::size_t i = 0; i < collectives.size(); ++i) {
    const bool first = i == 0;
    needs.push_back({.from = first ? collectives.back() : collectives[i - 1],
                     .to = collectives[i],
                     .distance = first ? 1 : 0,
                     .reason = schedule::Reason::lane_order});
  }
  return needs;
}

/// Whether a collective works on offloaded gradients in host memory, by op.
std::vector<bool> reduced_on_host(const schedule::Schedule& schedule, const store::ParameterStore& store) {
  const auto lies_there = [&](ParamBlock block) { return store.on_host(block) != schedule::OnHost::nothing; };
  std::vector<bool> there;
  for (const schedule::Op& op : schedule.ops) {
    const auto* sum = std::get_if<schedule::AllReduce>(&op);
    const auto* copies = std::get_if<schedule::AllReduceReplicated>(&op);
    there.push_back((sum != nullptr && !sum->staged && !sum->partial && lies_there(sum->block)) ||
                    (copies != nullptr && lies_there(copies->block)));
  }
  return there;
}

/// A new thread's GPU is the first one: a wait for an event there would make a context for every rank of the node.
void set_device_of_thread(c10::Device device) {
  if (device.is_cuda()) c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
}

}  // namespace

Layers make_layers(const model::Model& model, std::int64_t max_seq_len, std::int64_t loss_chunk_tokens,
                   at::Device device) {
  Layers layers;
  for (const model::ComputeBlock& block : model.compute_blocks) {
    layers.emplace_back();
    for (const model::Stage& stage : block.stages)
      layers.back().push_back(nn::make_layer(model, stage, max_seq_len, loss_chunk_tokens, device));
  }
  return layers;
}

Executor::Executor(const model::Model& model, schedule::Schedule schedule, store::ParameterStore& store,
                   const Layers& layers, Links links, optimizer::OptimizerPlan optimizer, Options options)
    : schedule_(std::move(schedule)), options_(std::move(options)) {
  std::vector<schedule::Need> needs = options_.needs ? *options_.needs : schedule::needs(schedule_, model);
  if (options_.device.is_cuda())
    device_lanes_.emplace(schedule_, needs, options_.device, reduced_on_host(schedule_, store),
                          options_.record_timeline);
  verbs_ = std::make_unique<Verbs>(model, schedule_, store, layers, std::move(links), std::move(optimizer), options_,
                                   device_lanes_ ? &*device_lanes_ : nullptr);
  if (options_.graphs) graphs_ = std::make_unique<RecordedGraphs>(schedule_, needs, options_.graphs);
  for (std::size_t i = 0; i < schedule_.ops.size(); ++i)
    if (std::holds_alternative<schedule::Update>(schedule_.ops[i])) updates_.push_back(static_cast<int>(i));
  if (!options_.on_exception) options_.on_exception = [] { mpi::abort_job_for_current_exception(); };
  driver_.emplace(
      schedule_, options_.ordered_collectives ? launch_needs(schedule_, std::move(needs)) : needs,
      options_.lane_threads,
      Runner{
          .run = [this](std::span<const int> ops, std::int64_t step) { perform(ops, step); },
          .together = [this](int op, std::int64_t step) { return graphs_ ? graphs_->segment_of(op, step) : nullptr; },
          .on_thread = [device = options_.device] { set_device_of_thread(device); },
          .on_lane_end = options_.on_lane_end,
          .on_exception = options_.on_exception});
}

Executor::~Executor() = default;

bool Executor::must_rest() const { return graphs_ && step_ + 2 == RecordedGraphs::recording_step; }

HostWork Executor::host_work() const { return verbs_->host_work(); }

StepResult Executor::run(const StepInput& input, bool last) {
  ++step_;
  StepInput now = input;
  if (graphs_) {
    now.microbatches = graphs_->kept(input.microbatches);
    invariant(rested_ || step_ != RecordedGraphs::recording_step, "lanes rest before graphs are recorded");
    graphs_->begin(step_);
  }
  verbs_->begin(now, graphs_ ? graphs_->loss() : at::Tensor());
  if (device_lanes_ && rested_) device_lanes_->start();
  rested_ = last;
  const Idle idle = driver_->run(step_, last);
  StepState& state = verbs_->state();
  if (!device_lanes_) {  // else streams wait, not the host
    state.result.exposed_seconds = idle.collectives;
    state.result.pipeline_wait_seconds = idle.pipeline;
  }
  if (graphs_) graphs_->end(step_, state.losses.head_on_device);
  if (last && device_lanes_) device_lanes_->drain(timeline_);
  return std::exchange(state.result, {});
}

void Executor::finish_updates() {
  if (step_ < 0) return;
  driver_->finish(step_, updates_);
  if (device_lanes_) device_lanes_->finish(updates_);
}

void Executor::perform(std::span<const int> ops, std::int64_t step) {
  const int first = ops.front(), last = ops.back();
  if (options_.on_op)
    for (const int op : ops) options_.on_op(op, step);
  const c10::OptionalStreamGuard on_stream(device_lanes_ ? device_lanes_->stream(first) : std::nullopt);
  if (device_lanes_) device_lanes_->begin(first, step);
  if (std::holds_alternative<schedule::ClipNorm>(schedule_.ops[static_cast<std::size_t>(first)]))
    verbs_->state().waited_for_pipeline = driver_->idle().pipeline;
  const auto begin = timeline::Clock::now();
  if (const std::vector<int>* const segment = graphs_ ? graphs_->segment_of(first, step) : nullptr; segment != nullptr)
    graphs_->launch(*segment, [&](int op) { verbs_->run_op(op, step); });
  else
    verbs_->run_op(first, step);
  if (device_lanes_) device_lanes_->end(first, last, step);
  if (options_.record_timeline && (!device_lanes_ || !device_lanes_->stream(first)))
    timeline_.record({step, first, last, begin, timeline::Clock::now(), device::memory_use().spaces});
}

}  // namespace trireme::executor
