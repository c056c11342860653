// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/job.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/weights.hpp"
#include "trireme/comm/agree.hpp"
#include "trireme/comm/topology.hpp"
#include "trireme/comm/transport.hpp"
#include "trireme/device/buffer.hpp"
#include "trireme/device/graphs.hpp"
#include "trireme/nn/documents.hpp"
#include "trireme/planner/replay.hpp"
#include "trireme/schedule/build.hpp"
#include "trireme/schedule/text.hpp"
#include "trireme/shard/copies.hpp"

namespace trireme::train {
namespace {

comm::StagingSource charged_staging() {
  return {.allocate =
              [](std::size_t bytes) {
                auto buffer = std::make_shared<at::Tensor>(device::buffer(
                    device::Category::communication, static_cast<std::int64_t>((bytes + 3) / 4), DType::fp32));
                return std::shared_ptr<std::byte[]>(buffer, static_cast<std::byte*>(buffer->mutable_data_ptr()));
              },
          .charge = [](std::size_t bytes) -> std::shared_ptr<void> {
            return std::make_shared<device::Charge>(device::Account{device::Category::communication},
                                                    Bytes{static_cast<std::int64_t>(bytes)});
          }};
}

/// int32 tokens as a tensor that shares the vector's memory, which outlives it.
at::Tensor borrowed(const std::vector<std::int32_t>& tokens) {
  return at::from_blob(const_cast<std::int32_t*>(tokens.data()), {static_cast<std::int64_t>(tokens.size())}, at::kInt);
}

/// Tokens where the step computes: on a GPU a copy, on its way there when this returns.
at::Tensor on_device(at::Tensor tokens, at::Device device) {
  if (!device.is_cuda()) return tokens;
  const device::ChargeTo charge(device::Category::data);
  return tokens.pin_memory().to(device, /*non_blocking=*/true);
}

/// nn::Microbatch::document_begin, where the run file asks for it.
at::Tensor documents(const config::Data& data, const at::Tensor& inputs, std::int64_t seq_len) {
  if (!data.document_mask) return {};
  const device::ChargeTo charge(device::Category::data);
  return nn::document_begins(inputs, seq_len, *data.document_end);
}

nn::Microbatch microbatch_of(const data::MicrobatchTokens& tokens, const config::RunConfig& config, double loss_scale,
                             at::Device device) {
  const at::Tensor inputs = borrowed(tokens.inputs);
  return {.inputs = on_device(inputs, device),
          .targets = on_device(borrowed(tokens.targets), device),
          .batch = config.batch.micro,
          .seq_len = config.data.seq_len,
          .document_begin = documents(config.data, inputs, config.data.seq_len),
          .loss_scale = loss_scale};
}

/// device.cuda_graphs
std::shared_ptr<device::Graphs> graphs_of(at::Device device) {
  if (!device.is_cuda())
    throw EnvironmentError(
        "device.cuda_graphs = true: this run computes on CPUs, for want of a GPU for every rank. Set device.type = "
        "\"cuda\" to hear what is missing, or device.cuda_graphs = false.");
  return device::make_graphs(device);
}

/// Ends the names of lanes that move what a GPU's rank keeps in the host's memory.
constexpr std::string_view on_host = " on the host";

bool spare_core(const comm::Topology& topology) { return topology.node_cores > topology.node_ranks; }

/// Lanes have threads where something on them makes the host wait or work: messages over MPI, offload's updates. Over
/// NCCL without offload one thread launches all lanes.
bool wants_lane_threads(const config::RunConfig& config, const JobOptions& options, const comm::Communicator& world) {
  if (options.lane_threads) return *options.lane_threads;
  const bool offloads = config.memory.offload != config::Offload::none;
  if (options.device.is_cuda() && (world.size() == 1 || options.link == comm::DeviceLink::nccl)) return offloads;
  return world.size() > 1 && spare_core(comm::probe_topology(world));
}

}  // namespace

Job::Job(const config::RunConfig& config, const comm::Communicator& world, JobOptions options)
    : config_(config),
      options_(std::move(options)),
      resolved_(config::resolve(config, world.size())),
      mesh_{resolved_.replicate, resolved_.shard, resolved_.tensor},
      at_(mesh_.coordinates(Rank{world.rank()})),
      model_(model::build(config.model, planner::tensor_part(config, resolved_, at_.tensor))),
      layout_(model_, mesh_.shard),
      lane_threads_(wants_lane_threads(config_, options_, world)),
      groups_(world, mesh_) {
  using schedule::Lane;
  comm::agree(world, "run file", config::print_run_file(config_));
  const schedule::Policy policy = schedule::policy_of(config_, resolved_);
  schedule::Schedule step = schedule::build_step(model_, resolved_.accumulation, policy);
  forward_schedule_ = schedule::build_forward(model_, policy);
  comm::agree(world, "schedule", schedule::print(step, model_));

  gather_ = collectives(comm::Group::shard, comm::Lane::gather, traffic_.counters(Lane::gather));
  reduce_ = collectives(comm::Group::shard, comm::Lane::reduce, traffic_.counters(Lane::reduce));
  if (mesh_.replicate > 1)
    replicate_ = collectives(comm::Group::replicate, comm::Lane::reduce, traffic_.counters(Lane::reduce));
  control_ = collectives(comm::Group::dp, comm::Lane::control, traffic_.counters(Lane::compute));
  if (mesh_.tensor > 1) make_tensor_collectives();
  if (options_.device.is_cuda() && config_.memory.offload != config::Offload::none) make_host_collectives();

  std::vector<schedule::Schedule> schedules{forward_schedule_};
  if (options_.trains) schedules.push_back(step);
  store::Buffers buffers = store::buffers_for(schedules, model_, options_.trains);
  buffers.partial = buffers.partial || (options_.trains && config_.precision.reduce == config::Reduce::bf16);
  store_ = std::make_unique<store::ParameterStore>(model_, layout_, at_.shard, buffers, config_.precision.compute,
                                                   options_.device);
  if (buffers.copy_group) {
    copy_group_ = groups_.at(comm::Group::shard, comm::Lane::gather).split(at_.shard / *buffers.copy_group, at_.shard);
    group_gather_ = collectives(*copy_group_, "shard_group", "shard_group/gather", traffic_.counters(Lane::gather));
  }
  layers_ = executor::make_layers(model_, config_.data.seq_len, config_.precision.compute, config_.loss.chunk_tokens,
                                  options_.device);
  if (!options_.trains) return;
  executor_ = std::make_unique<executor::Executor>(
      model_, std::move(step), *store_, layers_, links(), config_.optimizer,
      executor::Options{.lane_threads = lane_threads_,
                        .device = options_.device,
                        .ordered_collectives = options_.device.is_cuda() && options_.link == comm::DeviceLink::nccl,
                        .host_threads = options_.host_threads,
                        .reduce = config_.precision.reduce,
                        .graphs = config_.device.cuda_graphs ? graphs_of(options_.device) : nullptr,
                        .poison = options_.poison,
                        .record_timeline = options_.record_timeline,
                        .on_op = options_.on_op,
                        .on_lane_end =
                            [this](Lane lane, std::int64_t ended) {
                              // Lanes without collectives may end a step after the
                              // next one has begun.
                              if (lane <= Lane::reduce || lane == Lane::tensor) traffic_.lane_ended(lane, ended);
                            },
                        .on_copy = [this](std::string_view copy, Bytes bytes,
                                          std::int64_t copied_for) { traffic_.copied(copy, bytes, copied_for); }});
}

Job::~Job() = default;

void Job::make_tensor_collectives() {
  using schedule::Lane;
  tensor_ = collectives(comm::Group::tensor, comm::Lane::compute, traffic_.counters(Lane::tensor));
  copies_ = collectives(comm::Group::tensor, comm::Lane::reduce, traffic_.counters(Lane::reduce));
  tensor_control_ = collectives(comm::Group::tensor, comm::Lane::control, traffic_.counters(Lane::compute));
  const int group = shard::copy_group(model_);
  if (group == 1) return;
  key_value_group_ = groups_.at(comm::Group::tensor, comm::Lane::reduce).split(at_.tensor / group, at_.tensor);
  group_copies_ =
      collectives(*key_value_group_, "tensor_group", "tensor_group/reduce", traffic_.counters(Lane::reduce));
}

void Job::barrier() {
  control_->barrier();
  if (tensor_control_) tensor_control_->barrier();
}

std::unique_ptr<comm::Collectives> Job::collectives(comm::Group group, comm::Lane lane, comm::Counters& counters) {
  return collectives(groups_.at(group, lane), std::string(comm::traffic_name(group, lane)),
                     fmt::format("{}/{}", comm::to_text(group), comm::to_text(lane)), counters);
}

std::unique_ptr<comm::Collectives> Job::collectives(const comm::Communicator& communicator,
                                                    const std::string& traffic_name, const std::string& lane_name,
                                                    comm::Counters& counters) {
  const comm::Services services{.counters = &counters,
                                .recorder = &recorder_,
                                .deadline = {.timeout_seconds = config_.comm.timeout_seconds,
                                             .dump_path = options_.hang_dump_path,
                                             .silent_ranks = options_.silent_ranks},
                                .staging = charged_staging()};
  const bool values = traffic_name == "control" && !options_.control_over_link;  // in the host's memory
  auto transport =
      options_.device.is_cuda() && !values && !lane_name.ends_with(on_host)
          ? comm::make_device_transport(communicator, options_.device, options_.link, services, options_.transport)
          : comm::make_transport(communicator, services.staging, options_.transport);
  if (options_.wrap_transport && traffic_name != "control") transport = options_.wrap_transport(std::move(transport));
  return std::make_unique<comm::Collectives>(std::move(transport), traffic_name, lane_name, services);
}

void Job::make_host_collectives() {
  using schedule::Lane;
  comm::Counters& counters = traffic_.counters(Lane::reduce);
  const auto also = [&](const std::unique_ptr<comm::Collectives>& there, const comm::Communicator& communicator,
                        const char* group) {
    return there ? collectives(communicator, group, fmt::format("{}/reduce{}", group, on_host), counters) : nullptr;
  };
  replicate_on_host_ = also(replicate_, groups_.at(comm::Group::replicate, comm::Lane::reduce), "replicate");
  copies_on_host_ = also(copies_, groups_.at(comm::Group::tensor, comm::Lane::reduce), "tensor");
  if (key_value_group_) group_copies_on_host_ = also(group_copies_, *key_value_group_, "tensor_group");
}

executor::Links Job::links() {
  return {.gather = gather_.get(),
          .group_gather = group_gather_.get(),
          .reduce = reduce_.get(),
          .replicate = replicate_.get(),
          .control = control_.get(),
          .tensor = tensor_.get(),
          .copies = copies_.get(),
          .group_copies = group_copies_.get(),
          .tensor_control = tensor_control_.get(),
          .replicate_on_host = replicate_on_host_.get(),
          .copies_on_host = copies_on_host_.get(),
          .group_copies_on_host = group_copies_on_host_.get(),
          .first_replica = at_.replicate == 0};
}

std::string Job::name_of(DpRank dp_rank) const {
  return fmt::format("dp rank {} ({})", dp_rank.value,
                     groups_.at(comm::Group::dp, comm::Lane::control).name_of(dp_rank.value));
}

data::BatchShape Job::batch_shape() const {
  return {.dp_rank = dp_rank().value,
          .dp_size = mesh_.dp_size(),
          .micro = config_.batch.micro,
          .accumulation = resolved_.accumulation};
}

double Job::global_count(const data::StepBatch& batch) {
  if (config_.data.ignore_targets.empty()) return static_cast<double>(config_.batch.global * config_.data.seq_len);
  double count = static_cast<double>(batch.counted);
  control_->sum({&count, 1});
  return count;
}

executor::StepResult Job::step(const data::StepBatch& batch, double lr, bool last) {
  if (step_is_first_after_rest_) traffic_.rest();
  last = last || executor_->must_rest();
  const double count = step_targets_ = global_count(batch);
  std::vector<nn::Microbatch> microbatches;
  for (const data::MicrobatchTokens& tokens : batch.microbatches) {
    microbatches.push_back(microbatch_of(tokens, config_, count > 0 ? 1.0 / count : 0.0, options_.device));
    microbatches.back().z_loss = config_.loss.z_loss;
  }
  executor::StepResult result = executor_->run({.microbatches = microbatches, .lr = lr, .updates = updates_}, last);
  if (!result.skipped) ++updates_;
  step_traffic_ = traffic_.take(steps_++);
  step_is_first_after_rest_ = last;
  return result;
}

executor::Executor& Job::forward_executor(nn::Mode mode) {
  auto& slot = mode == nn::Mode::evaluate ? evaluator_ : inferrer_;
  if (!slot)
    slot = std::make_unique<executor::Executor>(
        model_, forward_schedule_, *store_, layers_, links(), config_.optimizer,
        executor::Options{.lane_threads = false, .device = options_.device, .mode = mode});
  return *slot;
}

Job::Evaluation Job::evaluate(data::BatchReader& reader, std::int64_t steps) {
  executor::Executor& run = forward_executor(nn::Mode::evaluate);
  Evaluation total;
  for (std::int64_t i = 0; i < steps; ++i) {
    const data::StepBatch batch = reader.next();
    double counted = static_cast<double>(batch.counted);
    control_->sum({&counted, 1});
    const std::vector<nn::Microbatch> microbatches{
        microbatch_of(batch.microbatches.front(), config_, 1.0, options_.device)};
    total.loss += run.run({.microbatches = microbatches}, true).loss;
    total.targets += counted;
  }
  if (total.targets > 0) total.loss /= total.targets;
  return total;
}

at::Tensor Job::infer(const at::Tensor& tokens) {
  const at::Tensor inputs = tokens.reshape({-1});
  const std::vector<nn::Microbatch> microbatches{{.inputs = on_device(inputs, options_.device),
                                                  .targets = {},
                                                  .batch = tokens.size(0),
                                                  .seq_len = tokens.size(1),
                                                  .document_begin = documents(config_.data, inputs, tokens.size(1))}};
  return device::on_host(forward_executor(nn::Mode::infer).run({.microbatches = microbatches}, true).logits);
}

at::Tensor Job::gather_masters(ParamBlock block) {
  const device::ChargeTo charge(device::Category::workspace);
  const at::Tensor shard = store_->master(block).to(options_.device);  // offload keeps it on the host
  at::Tensor held = at::empty({1, layout_[block].padded()}, shard.options());
  gather_->all_gather(shard.const_data_ptr(), held.mutable_data_ptr(), shard.numel(), DType::fp32);
  if (!options_.control_over_link) held = device::on_host(held);  // where the control group's values lie
  if (!tensor_control_) return device::on_host(held);
  at::Tensor all = at::empty({mesh_.tensor, layout_[block].padded()}, held.options());
  tensor_control_->all_gather(held.const_data_ptr(), all.mutable_data_ptr(), held.numel(), DType::fp32);
  return device::on_host(all);
}

config::RunConfig complete_model(config::RunConfig config) {
  if (!config.model.from.empty())
    config.model = checkpoint::merge_model_config(config.model, checkpoint::Weights::open(config.model.from).model());
  const model::Sizes sizes = model::build(config.model).sizes;
  config.model.kv_heads = sizes.kv_heads;
  config.model.head_dim = sizes.head_dim;
  if (sizes.positions > 0 && config.data.seq_len > sizes.positions)
    throw ConfigError(fmt::format("data.seq_len = {}: the model has learned {} positions; use shorter sequences",
                                  config.data.seq_len, sizes.positions));
  return config;
}

void check_weights(const config::RunConfig& config, const model::Model& model) {
  if (!config.model.from.empty()) checkpoint::Weights::open(config.model.from).check(model);
}

store::Provider first_parameters(const config::RunConfig& config) {
  if (config.model.from.empty()) return store::initial_values(config.run.seed);
  auto weights = std::make_shared<checkpoint::Weights>(checkpoint::Weights::open(config.model.from));
  // A transposed parameter is read once as a whole: a tensor rank may ask for many short runs of it.
  auto whole = std::make_shared<std::pair<std::string, std::vector<float>>>();
  return [weights, whole](const model::Parameter& parameter, shard::Range elements, std::span<float> out) {
    if (!parameter.transposed_in_files) return weights->read(parameter, elements, out);
    auto& [name, values] = *whole;
    if (name != parameter.name) {
      values.resize(static_cast<std::size_t>(parameter.full_elements()));
      weights->read(parameter, {.begin = 0, .end = parameter.full_elements()}, values);
      name = parameter.name;
    }
    std::copy_n(values.begin() + elements.begin, elements.size(), out.begin());
  };
}

}  // namespace trireme::train
