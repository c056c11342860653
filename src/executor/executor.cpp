// SPDX-License-Identifier: Apache-2.0
#include "trireme/executor/executor.hpp"

#include <c10/core/StreamGuard.h>

#include <type_traits>
#include <utility>
#include <variant>

#include "executor/lane_thread.hpp"
#include "trireme/base/error.hpp"
#include "trireme/comm/abort.hpp"
#include "trireme/device/history.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/schedule/access.hpp"

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
    const auto* copies = std::get_if<schedule::SumCopies>(&op);
    there.push_back((sum != nullptr && !sum->staged && !sum->partial && lies_there(sum->block)) ||
                    (copies != nullptr && lies_there(copies->block)));
  }
  return there;
}

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

/// The slot that each Reshard gives up, by op; other ops have none.
std::vector<schedule::Slot> given_up(const schedule::Schedule& schedule, const model::Model& model) {
  std::vector<schedule::Slot> slots(schedule.ops.size());
  std::vector<schedule::Slot> now(static_cast<std::size_t>(model.param_blocks()));
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    if (const auto* unshard = std::get_if<schedule::Unshard>(&schedule.ops[i]))
      now[static_cast<std::size_t>(unshard->block.value)] = unshard->slot;
    if (const auto* reshard = std::get_if<schedule::Reshard>(&schedule.ops[i]))
      slots[i] = now[static_cast<std::size_t>(reshard->block.value)];
  }
  return slots;
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
      parameter_slot_(given_up(schedule_, model)),
      activations_(options_.device),
      progress_(schedule_, [&] {
        std::vector<schedule::Need> needs = options_.needs ? *options_.needs : schedule::needs(schedule_, model);
        if (options_.device.is_cuda())
          device_lanes_.emplace(schedule_, needs, options_.device, reduced_on_host(schedule_, store),
                                options_.record_timeline);
        return options_.ordered_collectives ? launch_needs(schedule_, std::move(needs)) : needs;
      }()) {
  last_op_.fill(-1);
  squares_.resize(static_cast<std::size_t>(model.param_blocks()));
  clip_op_ = static_cast<int>(schedule_.ops.size());
  for (std::size_t i = 0; i < schedule_.ops.size(); ++i) {
    last_op_[static_cast<std::size_t>(schedule::lane_of(schedule_.ops[i]))] = static_cast<int>(i);
    if (std::holds_alternative<schedule::ClipNorm>(schedule_.ops[i])) clip_op_ = static_cast<int>(i);
  }
  if (!options_.on_exception) options_.on_exception = [] { comm::abort_job_for_current_exception(); };
  for (int b = 0; b < model.param_blocks(); ++b)
    decay_.push_back(optim::decay_ranges(model[ParamBlock{b}], store.layout()[ParamBlock{b}], store.shard_rank(),
                                         optimizer_.no_decay));
  for (int b = 0; b < model.param_blocks(); ++b) {
    const shard::BlockLayout& layout = store.layout()[ParamBlock{b}];
    copied_.push_back(shard::copied_ranges(model[ParamBlock{b}], layout, store.shard_rank()));
    counted_.push_back(shard::counted_ranges(model[ParamBlock{b}], layout, store.shard_rank()));
  }
  if (!options_.lane_threads) return;
  host_team_ = optim::Team(options_.host_threads);
  for (const schedule::Lane lane : schedule::all_lanes)
    if (lane != schedule::Lane::compute && last_op_[static_cast<std::size_t>(lane)] >= 0)
      lanes_.emplace_back([this, lane](const std::stop_token& stop) { lane_loop(lane, stop); });
}

Executor::~Executor() = default;

StepResult Executor::run(const StepInput& input, bool last) {
  ++step_;
  input_ = input;
  result_ = {};
  loss_ = {};
  device_loss_.reset();
  if (device_lanes_ && rested_) device_lanes_->start();
  rested_ = last;
  progress_.open(last ? step_ : step_ + 1);
  try {
    compute_lane();
  } catch (...) {
    options_.on_exception();
    throw;
  }
  if (last) progress_.drain(step_);
  if (last && device_lanes_) device_lanes_->drain(timeline_);
  return std::exchange(result_, {});
}

void Executor::compute_lane() {
  for (op_ = 0; op_ < static_cast<int>(schedule_.ops.size()); ++op_) {
    const schedule::Lane lane = schedule::lane_of(schedule_.ops[static_cast<std::size_t>(op_)]);
    if (lane != schedule::Lane::compute && options_.lane_threads) continue;
    const auto before = Clock::now();
    if (options_.lane_threads)
      invariant(progress_.wait(op_, step_, {}), "the compute lane is never asked to stop");
    else
      invariant(progress_.ready(op_, step_), "the schedule's order satisfies its needs");
    const auto begin = Clock::now();
    perform(op_, step_);
    if (device_lanes_) continue;  // streams wait, not the host
    result_.exposed_seconds += seconds(lane == schedule::Lane::compute ? begin - before : Clock::now() - begin);
  }
}

void Executor::lane_loop(schedule::Lane lane, const std::stop_token& stop) {
  prefer_short_slices();
  try {
    for (std::int64_t step = 0;; ++step)
      for (int op = 0; op < static_cast<int>(schedule_.ops.size()); ++op) {
        if (schedule::lane_of(schedule_.ops[static_cast<std::size_t>(op)]) != lane) continue;
        if (!progress_.wait(op, step, stop)) return;
        perform(op, step);
      }
  } catch (...) {
    options_.on_exception();
  }
}

void Executor::perform(int op, std::int64_t step) {
  if (options_.on_op) options_.on_op(op, step);
  if (options_.mode == nn::Mode::train) device::set_operation({op, step});
  const schedule::Lane lane = schedule::lane_of(schedule_.ops[static_cast<std::size_t>(op)]);
  c10::OptionalStreamGuard on_stream;
  if (device_lanes_) {
    if (const auto stream = device_lanes_->stream(op)) on_stream.reset_stream(*stream);
    device_lanes_->begin(op, step);
  }
  const auto begin = Clock::now();
  const schedule::Op& now = schedule_.ops[static_cast<std::size_t>(op)];
  const auto run_verb = [&](const auto& verb) {
    if constexpr (std::is_void_v<decltype(run(verb))>) {
      run(verb);
    } else {
      const Bytes copied = run(verb);
      if (options_.on_copy) options_.on_copy(schedule::copy_name(now), copied, op > clip_op_ ? step + 1 : step);
    }
  };
  std::visit(run_verb, now);
  device::set_operation({});
  if (device_lanes_) device_lanes_->end(op, step);
  if (options_.record_timeline && (!device_lanes_ || !device_lanes_->stream(op)))
    timeline_.record({step, op, begin, Clock::now(), device::memory_use().spaces});
  if (options_.on_lane_end && last_op_[static_cast<std::size_t>(lane)] == op) options_.on_lane_end(lane, step);
  progress_.done(op, step);
}

}  // namespace trireme::executor
