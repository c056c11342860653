// SPDX-License-Identifier: Apache-2.0
#include "trireme/executor/executor.hpp"

#include <c10/core/StreamGuard.h>

#include <type_traits>
#include <utility>
#include <variant>

#include "executor/segments.hpp"
#include "trireme/base/error.hpp"
#include "trireme/device/history.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/mpi/abort.hpp"
#include "trireme/schedule/access.hpp"
#include "trireme/schedule/buffers.hpp"

namespace trireme::executor {
namespace {

/// What the host's launches wait for: what the lanes need, and each collective for the one before it.
std::vector<schedule::Need> launch_needs(const schedule::Schedule& schedule, std::vector<schedule::Need> needs) {
  std::vector<int> collectives;
  for (int op = 0; op < static_cast<int>(schedule.ops.size()); ++op) {
    const schedule::Lane lane = schedule::lane_of(schedule.ops[static_cast<std::size_t>(op)]);
    if (lane == schedule::Lane::gather || lane == schedule::Lane::reduce || lane == schedule::Lane::tensor)
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

/// Which collectives work on gradients that offload keeps in the host's memory, by op.
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

}  // namespace

Layers make_layers(const model::Model& model, std::int64_t max_seq_len, DType compute, std::int64_t loss_chunk_tokens,
                   at::Device device) {
  Layers layers;
  for (const model::ComputeBlock& block : model.compute_blocks) {
    layers.emplace_back();
    for (const model::Stage& stage : block.stages)
      layers.back().push_back(nn::make_layer(model, stage, max_seq_len, compute, loss_chunk_tokens, device));
  }
  return layers;
}

Executor::Executor(const model::Model& model, schedule::Schedule schedule, store::ParameterStore& store,
                   const Layers& layers, Links links, config::Optimizer optimizer, Options options)
    : model_(model),
      schedule_(std::move(schedule)),
      store_(store),
      layers_(layers),
      links_(links),
      optimizer_(std::move(optimizer)),
      options_(std::move(options)),
      program_(resolve(schedule_, model, store)),
      activations_(options_.device) {
  std::vector<schedule::Need> needs = options_.needs ? *options_.needs : schedule::needs(schedule_, model);
  if (options_.device.is_cuda())
    device_lanes_.emplace(schedule_, needs, options_.device, reduced_on_host(schedule_, store),
                          options_.record_timeline);
  in_flight_.resize(static_cast<std::size_t>(schedule_.microbatches));
  squares_.resize(static_cast<std::size_t>(model.param_blocks()));
  clip_op_ = static_cast<int>(schedule_.ops.size());
  for (std::size_t i = 0; i < schedule_.ops.size(); ++i) {
    if (std::holds_alternative<schedule::ClipNorm>(schedule_.ops[i])) clip_op_ = static_cast<int>(i);
    if (std::holds_alternative<schedule::Update>(schedule_.ops[i])) updates_.push_back(static_cast<int>(i));
  }
  if (!options_.on_exception) options_.on_exception = [] { mpi::abort_job_for_current_exception(); };
  for (int b = 0; b < model.param_blocks(); ++b)
    decay_.push_back(optim::decay_ranges(model[ParamBlock{b}], store.layout()[ParamBlock{b}], store.shard_rank(),
                                         optimizer_.no_decay));
  for (int b = 0; b < model.param_blocks(); ++b) {
    const shard::BlockLayout& layout = store.layout()[ParamBlock{b}];
    copied_.push_back(shard::copied_ranges(model[ParamBlock{b}], layout, store.shard_rank()));
    counted_.push_back(shard::counted_ranges(model[ParamBlock{b}], layout, store.shard_rank()));
  }
  if (options_.graphs) {
    segments_ = segments(schedule_, needs);
    segment_of_.assign(schedule_.ops.size(), -1);
    graph_of_.assign(segments_.size(), -1);
    for (std::size_t i = 0; i < segments_.size(); ++i)
      for (const int op : segments_[i]) segment_of_[static_cast<std::size_t>(op)] = static_cast<int>(i);
  }
  if (options_.lane_threads) host_team_ = optim::Team(options_.host_threads);
  driver_.emplace(schedule_, options_.ordered_collectives ? launch_needs(schedule_, std::move(needs)) : needs,
                  options_.lane_threads,
                  Runner{.run = [this](std::span<const int> ops, std::int64_t step) { perform(ops, step); },
                         .together = [this](int op, std::int64_t step) { return segment_of(op, step); },
                         .on_lane_end = options_.on_lane_end,
                         .on_exception = options_.on_exception});
}

Executor::~Executor() = default;

StepResult Executor::run(const StepInput& input, bool last) {
  ++step_;
  input_ = input;
  if (options_.graphs) input_.microbatches = kept(input.microbatches);
  result_ = {};
  loss_ = {};
  device_loss_ = graphs_loss_;  // undefined without
  if (options_.graphs && step_ == recording_step) {
    invariant(rested_, "lanes rest before graphs are recorded");
    options_.graphs->make_room();
  }
  if (device_lanes_ && rested_) device_lanes_->start();
  rested_ = last;
  const double exposed_seconds = driver_->run(step_, last);
  if (!device_lanes_) result_.exposed_seconds = exposed_seconds;  // else streams wait, not the host
  if (options_.graphs && step_ == recording_step) {
    graphs_loss_ = device_loss_;
    graphs_memory_ = device::Charge::of_gpu(device::Category::activations, options_.graphs->memory());
  }
  if (last && device_lanes_) device_lanes_->drain(timeline_);
  return std::exchange(result_, {});
}

void Executor::finish_updates() {
  if (step_ >= 0) driver_->finish(step_, updates_);
}

const std::vector<int>* Executor::segment_of(int op, std::int64_t step) const {
  if (segment_of_.empty() || step < recording_step) return nullptr;
  const int segment = segment_of_[static_cast<std::size_t>(op)];
  return segment < 0 ? nullptr : &segments_[static_cast<std::size_t>(segment)];
}

void Executor::launch_graph(const std::vector<int>& segment, std::int64_t step) {
  int& graph = graph_of_[static_cast<std::size_t>(segment_of_[static_cast<std::size_t>(segment.front())])];
  if (graph < 0)
    graph = options_.graphs->record([&] {
      for (const int op : segment) run_verb(op, step);
    });
  options_.graphs->launch(graph);
}

std::span<const nn::Microbatch> Executor::kept(std::span<const nn::Microbatch> microbatches) {
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

void Executor::perform(std::span<const int> ops, std::int64_t step) {
  const int first = ops.front(), last = ops.back();
  if (options_.on_op)
    for (const int op : ops) options_.on_op(op, step);
  c10::OptionalStreamGuard on_stream;
  if (device_lanes_) {
    if (const auto stream = device_lanes_->stream(first)) on_stream.reset_stream(*stream);
    device_lanes_->begin(first, step);
  }
  const auto begin = timeline::Clock::now();
  if (const std::vector<int>* const segment = segment_of(first, step); segment != nullptr)
    launch_graph(*segment, step);
  else
    run_verb(first, step);
  if (device_lanes_) device_lanes_->end(first, last, step);
  if (options_.record_timeline && (!device_lanes_ || !device_lanes_->stream(first)))
    timeline_.record({step, first, last, begin, timeline::Clock::now(), device::memory_use().spaces});
}

void Executor::run_verb(int op, std::int64_t step) {
  if (options_.mode == nn::Mode::train) device::set_operation({op, step});
  const schedule::Op& now = schedule_.ops[static_cast<std::size_t>(op)];
  const auto run_it = [&](const auto& verb) {
    if constexpr (requires(const Operands& operands) { run(verb, operands); }) {
      run(verb, program_[static_cast<std::size_t>(op)]);
    } else if constexpr (std::is_void_v<decltype(run(verb))>) {
      run(verb);
    } else {
      const Bytes copied = run(verb);
      if (options_.on_copy) options_.on_copy(schedule::copy_name(now), copied, op > clip_op_ ? step + 1 : step);
    }
  };
  std::visit(run_it, now);
  device::set_operation({});
}

}  // namespace trireme::executor
