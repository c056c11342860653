// SPDX-License-Identifier: Apache-2.0
// Dispatches an op to the function of its verb.
#include <ATen/ops/zeros.h>

#include <type_traits>
#include <utility>
#include <variant>

#include "executor/verbs.hpp"
#include "trireme/device/buffer.hpp"
#include "trireme/device/history.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/optim/device.hpp"
#include "trireme/schedule/access.hpp"

namespace trireme::executor {
namespace {

/// By op, the parameter block whose gradient shard it is the last to write before the norm.
std::vector<std::optional<ParamBlock>> last_writes(const schedule::Schedule& schedule, const model::Model& model) {
  std::vector<std::optional<ParamBlock>> found(schedule.ops.size());
  std::vector<bool> written(static_cast<std::size_t>(model.param_blocks()));
  const std::vector<schedule::Access> accesses = schedule::accesses(schedule, model);
  for (std::size_t i = schedule.ops.size(); i-- > 0;)
    for (const schedule::Resource& resource : accesses[i].writes)
      if (const auto* shard = std::get_if<schedule::resource::GradientShard>(&resource);
          shard != nullptr && !written[static_cast<std::size_t>(shard->block.value)]) {
        written[static_cast<std::size_t>(shard->block.value)] = true;
        found[i] = shard->block;
      }
  return found;
}

}  // namespace

Verbs::Verbs(const model::Model& model, const schedule::Schedule& schedule, store::ParameterStore& store,
             const Layers& layers, Links links, optimizer::OptimizerPlan optimizer, const Options& options,
             DeviceLanes* lanes)
    : model_(model),
      schedule_(schedule),
      store_(store),
      layers_(layers),
      links_(std::move(links)),
      optimizer_(std::move(optimizer)),
      options_(options),
      lanes_(lanes),
      program_(resolve(schedule, model, store)),
      clip_op_(static_cast<int>(schedule.ops.size())),
      activations_(options.device),
      counts_(static_cast<std::size_t>(model.blocks() * schedule.microbatches)),
      squares_(static_cast<std::size_t>(model.param_blocks())) {
  state_.values.resize(static_cast<std::size_t>(schedule.microbatches));
  for (std::size_t i = 0; i < schedule.ops.size(); ++i)
    if (std::holds_alternative<schedule::ClipNorm>(schedule.ops[i])) clip_op_ = static_cast<int>(i);
  for (int b = 0; b < model.param_blocks(); ++b) {
    const model::ParameterBlock& block = model[ParamBlock{b}];
    const shard::BlockLayout& layout = store.layout()[ParamBlock{b}];
    const int shard = store.shard_of(ParamBlock{b});
    update_ranges_.push_back(optimizer_.ranges(block, layout, shard));
    copied_.push_back(shard::copied_ranges(block, layout, shard));
    counted_.push_back(shard::counted_ranges(block, layout, shard));
    const auto place = std::ranges::find(options.block_names, block.name);
    block_places_.push_back(static_cast<std::size_t>(place - options.block_names.begin()));
  }
  block_squares_.resize(options.block_names.size());
  if (lanes != nullptr && clip_op_ < static_cast<int>(schedule.ops.size())) {
    completes_ = last_writes(schedule, model);
    const device::ChargeTo charge(device::Category::workspace);
    device_squares_ = at::zeros({model.param_blocks()}, at::TensorOptions(at::kDouble).device(options.device));
  }
  if (optimizer_.matrices() && clip_op_ < static_cast<int>(schedule.ops.size()))
    matrices_.emplace(optimizer_, model, store, schedule);
  if (options.lane_threads) host_team_ = optim::Team(options.host_threads);
}

void Verbs::begin(const StepInput& input, const at::Tensor& device_loss) {
  state_.input = input;
  state_.result = {};
  state_.begin = timeline::Clock::now();
  if (const auto& experts = model_.sizes.decoder.experts; experts && options_.mode == nn::Mode::train) {
    state_.result.expert_tokens.resize(static_cast<std::size_t>(model_.sizes.layers));
    for (std::int64_t layer = experts->dense_layers; layer < model_.sizes.layers; ++layer)
      state_.result.expert_tokens[static_cast<std::size_t>(layer)].assign(static_cast<std::size_t>(experts->count), 0);
  }
  state_.losses = {.head_on_device = device_loss};
  device_choice_biases_.clear();
}

void Verbs::run_op(int op, std::int64_t step) {
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
  if (!completes_.empty() && completes_[static_cast<std::size_t>(op)])
    square_on_device(*completes_[static_cast<std::size_t>(op)]);
  device::set_operation({});
}

void Verbs::run(const schedule::FreeGradient& op) {
  if (device::has_memory(store_.gradient(op.block))) store_.free_gradient(op.block);  // else this is the first step
}

void Verbs::square_on_device(ParamBlock block) {
  const at::Tensor& gradient = store_.gradient(block);
  if (!gradient.is_cuda()) return;
  const device::ChargeTo charge(device::Category::workspace);
  const at::Tensor into = device_squares_.narrow(0, block.value, 1);
  into.zero_();
  for (const shard::Range& range : counted_[static_cast<std::size_t>(block.value)])
    optim::sum_of_squares(gradient, range, into);
}

}  // namespace trireme::executor
