// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/engine/job.hpp"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <variant>

#include "train/engine/agreement.hpp"
#include "train/engine/job_links.hpp"
#include "train/engine/job_schedules.hpp"
#include "train/engine/microbatches.hpp"
#include "train/engine/windows.hpp"
#include "trireme/base/error.hpp"
#include "trireme/device/buffer.hpp"
#include "trireme/device/graphs.hpp"
#include "trireme/kernels/product_workspace.hpp"
#include "trireme/model/kv_cache.hpp"
#include "trireme/mpi/require_equal.hpp"
#include "trireme/mpi/topology.hpp"
#include "trireme/schedule/passes/build.hpp"
#include "trireme/shard/copies.hpp"

namespace trireme::train {
namespace {

/// device.cuda_graphs
std::shared_ptr<device::Graphs> graphs_of(at::Device device) {
  if (!device.is_cuda())
    throw EnvironmentError(
        "device.cuda_graphs = true requires a GPU per rank, but this run computes on CPUs. Set device.type = "
        "\"cuda\" to see which rank has none, or device.cuda_graphs = false.");
  return device::make_graphs(device);
}

/// Whether ops of a lane call collectives that are counted.
bool calls_collectives(schedule::Lane lane) {
  using schedule::Lane;
  switch (lane) {
    case Lane::compute:
    case Lane::gather:
    case Lane::reduce:
    case Lane::tensor:
    case Lane::context:
    case Lane::expert:
    case Lane::send: return true;
    case Lane::device_to_host:
    case Lane::host_to_device:
    case Lane::host:
    case Lane::optimizer:
    case Lane::receive: return false;  // receives are counted by those who send
  }
  throw BugError("a lane is not of the schedule's");
}

/// The pipeline ranks that these lists send to and receive from.
comm::ChannelPeers peers_of(const std::vector<schedule::Schedule>& lists) {
  comm::ChannelPeers peers;
  for (const schedule::Schedule& list : lists)
    for (const schedule::Op& op : list.ops) {
      if (const auto* send = std::get_if<schedule::Send>(&op)) peers.to.insert(send->peer);
      if (const auto* receive = std::get_if<schedule::Receive>(&op)) peers.from.insert(receive->peer);
    }
  return peers;
}

/// Whether two pipeline ranks hold a tied embedding: in a V one rank has both ends of the model.
bool holds_tied_twice(const config::RunConfig& config, const model::Model& model) {
  using enum config::PipelineKind;
  const config::PipelineKind kind = config.pipeline.schedule;
  return config.mesh.pipeline > 1 && model.sizes.tied && kind != zbv && kind != dualpipev;
}

void refuse_divided_generation(const mesh::Mesh& mesh) {
  invariant(mesh.pipeline == 1 && mesh.context == 1 && mesh.expert == 1,
            "generation is not divided over a pipeline, sequences or experts");
}

std::vector<std::string> block_names(const model::Model& model) {
  std::vector<std::string> names;
  for (const model::ParameterBlock& block : model.parameter_blocks) names.push_back(block.name);
  return names;
}

bool spare_core(const mpi::Topology& topology) { return topology.node_cores > topology.node_ranks; }

/// Lanes have threads where something on them makes the host wait or work: messages over MPI, offload's updates. Over
/// NCCL without offload one thread launches all lanes.
bool wants_lane_threads(const config::RunConfig& config, const JobOptions& options, const mpi::Communicator& world) {
  if (options.lane_threads) return *options.lane_threads;
  const bool offloads = config.memory.offload != config::Offload::none;
  if (options.device.is_cuda() && (world.size() == 1 || options.link == comm::DeviceLink::nccl)) return offloads;
  return world.size() > 1 && spare_core(mpi::probe_topology(world));
}

}  // namespace

Job::Job(const config::RunConfig& config, const mpi::Communicator& world, JobOptions options)
    : Job(config, world, std::move(options), config::resolve(config, world.size())) {}

Job::Job(const config::RunConfig& config, const mpi::Communicator& world, JobOptions options,
         const config::Resolved& resolved)
    : Job(config, world, options, resolved,
          job_schedules(config, resolved, resolved.coordinates(Rank{world.rank()}), options.device.is_cuda())) {}

Job::Job(const config::RunConfig& config, const mpi::Communicator& world, JobOptions options,
         const config::Resolved& resolved, JobSchedules schedules)
    : config_(config),
      options_(std::move(options)),
      resolved_(resolved),
      at_(resolved_.coordinates(Rank{world.rank()})),
      model_(std::move(schedules.held)),
      whole_model_(std::move(schedules.whole)),
      holders_(std::move(schedules.holders)),
      layout_(model_, mesh().shards()),
      forward_schedule_(std::move(schedules.forward)) {
  if (whole_model_) whole_layout_.emplace(*whole_model_, mesh().shards());
  lane_threads_ = wants_lane_threads(config_, options_, world);
  agree_on_build_and_places(world, mesh(), dp_rank());
  mpi::require_equal(world, "the run file", config::print_run_file(config_));
  mpi::require_equal(world, "the schedule", schedules.text);

  std::vector<schedule::Schedule> runs{forward_schedule_};
  if (options_.trains) runs.push_back(schedules.step);
  store::Buffers buffers = store::buffers_for(runs, model_, options_.trains);
  buffers.stream_elements = config_.batch.micro * config_.data.seq_len / mesh().context * model_.sizes.hidden /
                            (model_.part.sequence_parallel ? model_.part.ranks : 1);
  buffers.partial = buffers.partial || (options_.trains && config_.precision.reduce == config::Reduce::bf16);
  buffers.optimizer = optimizer::OptimizerPlan(config_);
  const bool matrices = options_.trains && buffers.optimizer.matrices();
  if (matrices) {
    invariant(!options_.device.is_cuda(), "the preflight check refuses Muon on GPUs");
    const optimizer::OwnerPlan owners(model_, layout_, *buffers.optimizer.matrices());
    buffers.matrices = owners.buffers(owners.rank_of(mesh().shard_of(at_)));
  }
  buffers.split_masters = options_.trains && config_.precision.masters == config::Masters::split;
  buffers.travelling_memory = memory_of_windows(options_);
  store_ = std::make_unique<store::ParameterStore>(model_, layout_, mesh().shard_of(at_), buffers,
                                                   config_.precision.compute, options_.device);
  links_ = std::make_unique<JobLinks>(
      world,
      executor::LinkOptions{
          .mesh = mesh(),
          .shard_group = buffers.reshard_group.value_or(1),
          .tensor_group = shard::kv_replication_group(model_),
          .tied = holds_tied_twice(config_, model_),
          .expert_blocks = model::divides_experts(whole_model()),
          .sums_loads = model::sums_loads(whole_model()),
          .matrices = matrices,
          .gradients_on_host = options_.device.is_cuda() && config_.memory.offload != config::Offload::none},
      peers_of(runs), config_, options_, traffic_);
  add_windows(model_, *store_, links_->table(), options_, world);
  product_workspace_ = kernels::keep_product_workspace(options_.device, config_.precision.compute);
  layers_ = executor::make_layers(model_, config_.data.seq_len, config_.loss.chunk_tokens, options_.device);
  if (!options_.trains) return;
  std::optional<std::vector<schedule::Need>> needs;
  if (options_.needs) needs = options_.needs(schedules.step, model_);
  executor_ = std::make_unique<executor::Executor>(
      model_, std::move(schedules.step), *store_, layers_, links_->table(), optimizer::OptimizerPlan(config_),
      executor::Options{
          .lane_threads = lane_threads_,
          .device = options_.device,
          .ordered_collectives =
              options_.ordered_collectives || (options_.device.is_cuda() && options_.link == comm::DeviceLink::nccl),
          .host_threads = options_.host_threads,
          .first_replica = at_.replicate == 0,
          .first_pipeline_rank = at_.pipeline == 0,
          .reduce = config_.precision.reduce,
          .balance_bias_rate = config_.loss.balance_bias_rate,
          .block_names = config_.metrics.block_norms ? block_names(whole_model()) : std::vector<std::string>{},
          .graphs = config_.device.cuda_graphs ? graphs_of(options_.device) : nullptr,
          .poison = options_.poison,
          .record_timeline = options_.record_timeline,
          .on_op = options_.on_op,
          // Lanes without collectives may end a step after the next one has begun.
          .on_lane_end =
              [this](schedule::Lane lane, std::int64_t ended) {
                if (calls_collectives(lane)) traffic_.lane_ended(lane, ended);
              },
          .on_copy = [this](std::string_view copy, Bytes bytes,
                            std::int64_t copied_for) { traffic_.copied(copy, bytes, copied_for); },
          .needs = std::move(needs)});
}

Job::~Job() = default;

comm::Collectives& Job::control() { return links_->table().at({mesh::Group::dp, schedule::Lane::compute}); }

Bytes Job::staging() const { return links_->staging(); }

comm::Collectives& Job::gather() const { return links_->table().at({mesh::Group::shard, schedule::Lane::gather}); }

comm::Collectives* Job::tensor_control() const {
  return links_->table().find({mesh::Group::tensor, schedule::Lane::compute});
}

comm::Collectives* Job::pipeline_control() const {
  return links_->table().find({mesh::Group::pipeline, schedule::Lane::compute});
}

void Job::barrier() {
  control().barrier();
  if (tensor_control() != nullptr) tensor_control()->barrier();
  if (pipeline_control() != nullptr) pipeline_control()->barrier();
}

std::string Job::name_of(DpRank dp_rank) const {
  return fmt::format("dp rank {} ({})", dp_rank.value,
                     links_->communicator({mesh::Group::dp, schedule::Lane::compute}).name_of(dp_rank.value));
}

data::BatchShape Job::batch_shape() const {
  return {.dp_rank = dp_rank().value,
          .dp_size = mesh().dp_size(),
          .micro = config_.batch.micro,
          .accumulation = resolved_.accumulation};
}

double Job::global_count(const data::StepBatch& batch) {
  step_tokens_ = static_cast<double>(config_.batch.global * config_.data.seq_len);
  if (config_.data.ignore_targets.empty() && !batch.masked) return step_tokens_;
  if (!batch.packed) return sum_of_counts(batch);
  std::array<double, 2> counts{static_cast<double>(batch.counted), static_cast<double>(batch.padding)};
  control().sum(counts);
  step_tokens_ -= counts[1] / mesh().context;
  return counts[0] / mesh().context;
}

double Job::sum_of_counts(const data::StepBatch& batch) {
  double count = static_cast<double>(batch.counted);
  control().sum({&count, 1});
  return count / mesh().context;  // all context ranks read the same samples
}

executor::StepResult Job::step(const data::StepBatch& batch, double lr, bool last,
                               const optimizer::SpikeWindow* spikes) {
  share_choice_biases();
  if (step_is_first_after_rest_) traffic_.rest();
  last = last || executor_->must_rest();
  const double count = step_targets_ = global_count(batch);
  std::vector<nn::Microbatch> microbatches;
  for (const data::MicrobatchTokens& tokens : batch.microbatches) {
    microbatches.push_back(
        microbatch_of(tokens, config_, count > 0 ? 1.0 / count : 0.0, options_.device, model_.part.context));
    add_losses(config_, microbatches.back());
  }
  executor::StepResult result = executor_->run(
      {.microbatches = microbatches, .lr = lr, .updates = updates_, .counts = count > 0, .spikes = spikes}, last);
  if (!result.skipped) ++updates_;
  step_traffic_ = traffic_.take(steps_++);
  step_is_first_after_rest_ = last;
  return result;
}

std::unique_ptr<executor::Executor> Job::make_forward(const schedule::Schedule& schedule, nn::Mode mode) {
  return std::make_unique<executor::Executor>(
      model_, schedule, *store_, layers_, links_->table(), optimizer::OptimizerPlan(config_),
      executor::Options{.lane_threads = false, .device = options_.device, .mode = mode});
}

executor::Executor& Job::forward_executor(nn::Mode mode) {
  finish_updates();  // on a GPU they have a separate lane, which no forward of another schedule waits for
  share_choice_biases();
  auto& slot = mode == nn::Mode::evaluate ? evaluator_ : inferrer_;
  if (!slot) slot = make_forward(forward_schedule_, mode);
  return *slot;
}

Job::Evaluation Job::evaluate(data::BatchReader& reader, std::int64_t steps) {
  return evaluate([&] { return std::optional(reader.next()); }, steps);
}

Job::Evaluation Job::evaluate(const NextBatch& next, std::int64_t steps) {
  executor::Executor& run = forward_executor(nn::Mode::evaluate);
  Evaluation total;
  for (std::int64_t i = 0; i < steps; ++i) {
    const std::optional<data::StepBatch> batch = next();
    if (!batch) {
      total.complete = false;
      break;
    }
    const double counted = sum_of_counts(*batch);
    const std::vector<nn::Microbatch> microbatches{
        microbatch_of(batch->microbatches.front(), config_, 1.0, options_.device, model_.part.context)};
    total.loss += run.run({.microbatches = microbatches}, true).loss;
    total.targets += counted;
  }
  if (pipeline_control() != nullptr) pipeline_control()->sum({&total.loss, 1});  // one pipeline rank has the head
  total.loss = total.targets > 0 ? total.loss / total.targets : std::numeric_limits<double>::quiet_NaN();
  return total;
}

double Job::row_loss(const data::MicrobatchTokens& row) {
  executor::Executor& run = forward_executor(nn::Mode::evaluate);
  if (mesh().tensor == 1 && mesh().context == 1 && mesh().pipeline == 1 && mesh().expert == 1) {
    const std::vector<nn::Microbatch> microbatches{row_of(row, options_.device)};
    return run.run({.microbatches = microbatches}, true).own_loss;
  }
  const data::MicrobatchTokens padded = padded_row(row, config_);
  const std::vector<nn::Microbatch> microbatches{
      microbatch_of(padded, config_, 1.0, options_.device, model_.part.context)};
  return run.run({.microbatches = microbatches}, true).own_loss;
}

void Job::sum_of_rows(std::span<double> values) {
  control().sum(values);
  if (pipeline_control() != nullptr) pipeline_control()->sum(values);  // one pipeline rank has the head
}

at::Tensor Job::infer(const at::Tensor& tokens) {
  refuse_divided_generation(mesh());
  const std::vector<nn::Microbatch> microbatches{prompts_of(tokens, config_, options_.device)};
  return device::on_host(forward_executor(nn::Mode::infer).run({.microbatches = microbatches}, true).logits);
}

at::Tensor Job::infer_cached(const at::Tensor& tokens, std::int64_t past) {
  refuse_divided_generation(mesh());
  share_choice_biases();
  if (!generator_)
    generator_ =
        make_forward(schedule::build_generation(model_, schedule::policy_of(config_, resolved_)), nn::Mode::infer);
  const std::vector<nn::Microbatch> microbatches{added_tokens_of(tokens, past, config_, options_.device)};
  return device::on_host(generator_->run({.microbatches = microbatches}, true).logits);
}

Bytes Job::kv_cache_bytes(std::int64_t rows) const {
  return model::kv_cache_bytes(model_, rows, config_.data.seq_len, config_.precision.compute);
}

}  // namespace trireme::train
