// SPDX-License-Identifier: Apache-2.0
//
// Combinations nobody thought of: random models, meshes, policies and switches of the executor against the plain
// program, once as a job and once as `trireme train` runs it: with metrics, traces, snapshots, evaluations, replica
// checks, saves, exports, and a restart in the middle. TRIREME_TEST_SEED draws others. In simulated_gpu.mpi_tests on
// that GPU, with CUDA graphs.
//
// ranks: 1 2 3 4 6 8
//
// labels: slow
//
// timeout: 900
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "support/jobs.hpp"
#include "train/engine/replicas.hpp"
#include "trireme/config/load.hpp"
#include "trireme/device/gpus.hpp"
#include "trireme/device/history.hpp"
#include "trireme/huggingface/huggingface.hpp"
#include "trireme/model/architecture.hpp"
#include "trireme/train/run.hpp"

namespace trireme::train {
namespace {

constexpr int draws = 6;

/// The same numbers on every rank and machine.
class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}

  template <class T>
  T of(std::initializer_list<T> choices) {
    return choices.begin()[random_() % choices.size()];
  }
  bool coin() { return random_() % 2 == 1; }
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(high - low + 1));
  }
  std::int64_t divisor_of(std::int64_t number, std::int64_t most) {
    std::vector<std::int64_t> divisors;
    for (std::int64_t d = 1; d <= std::min(number, most); ++d)
      if (number % d == 0) divisors.push_back(d);
    return divisors[random_() % divisors.size()];
  }

 private:
  std::mt19937 random_;
};

std::int64_t up(std::int64_t size, std::int64_t multiple) { return (size + multiple - 1) / multiple * multiple; }

config::Model draw_model(Draw& draw) {
  config::Model model = {.vocab_size = 257, .norm_eps = 1e-4, .rope_theta = 500};
  model.hidden_size = draw.between(40, 90);
  model.intermediate_size = draw.between(30, 130);
  model.layers = draw.between(1, 3);
  model.heads = draw.of<std::int64_t>({2, 3, 4, 6});
  model.kv_heads = draw.divisor_of(model.heads, model.heads);
  model.head_dim = 2 * draw.between(3, 9);
  model.tie_embeddings = draw.coin();
  if (draw.coin()) model.rope_scaling = config::RopeScaling{.factor = 4, .original_max_position_embeddings = 16};
  return model;
}

/// Sizes that the tensor axis can share. A norm over all heads together is not shared.
void draw_tensor(Draw& draw, config::RunConfig& config, const model::Architecture& family, int ranks) {
  config::Model& model = config.model;
  const bool shared = draw.coin() && family.decoder.qk_norm != model::QkNorm::width;
  const std::int64_t tensor = shared ? draw.divisor_of(ranks, 4) : 1;
  config.mesh.tensor = tensor;
  model.heads = up(model.heads, tensor);
  model.intermediate_size = up(model.intermediate_size, tensor);
  do model.kv_heads = draw.divisor_of(model.heads, model.heads);
  while (model.kv_heads % tensor != 0 && tensor % model.kv_heads != 0);
}

/// The family, with options that it has.
void draw_family(Draw& draw, config::Model& model, const model::Architecture& family) {
  model.architecture = family.name;
  if (family.name == "gpt2") {
    model.hidden_size = up(model.hidden_size, model.heads);
    model.kv_heads = model.head_dim = 0;
    model.positions = draw.between(15, 40);
    model.rope_theta = config::Model{}.rope_theta;
    model.rope_scaling.reset();
    return;
  }
  model.attention_bias = family.expresses(&config::Model::attention_bias) && draw.coin();
  model.mlp_bias = family.expresses(&config::Model::mlp_bias) && draw.coin();
  // What a run file says of layers that the model lacks is not in its weights' config.json.
  if (family.skips_rope) model.no_rope_interval = draw.between(0, model.layers);
  using enum config::RopeType;
  if (model.rope_scaling) model.rope_scaling->type = draw.of({llama3, linear, yarn});
  if (family.windows == model::Windows::none || draw.coin()) return;
  model.sliding_window = draw.between(1, 12);
  if (family.windows != model::Windows::all && model.layers > 1 && draw.coin())
    model.layer_types = draw.of<std::vector<std::string>>(
        {{config::full_attention, config::sliding_attention}, {config::sliding_attention, config::full_attention}});
}

config::Sync draw_sync(Draw& draw, std::int64_t shard) {
  using enum config::SyncPolicy;
  config::Sync sync;
  sync.policy = draw.of({immediate, deferred, immediate_all});
  sync.reshard_after_forward = draw.of<std::int64_t>({0, 1, draw.divisor_of(shard, shard)});
  sync.reshard_after_backward = draw.coin();
  sync.prefetch_bytes = draw.of<std::optional<Bytes>>(
      {std::nullopt, Bytes{0}, Bytes{draw.between(1, 400'000)}, Bytes{std::int64_t{1} << 40}});
  return sync;
}

config::Memory draw_memory(Draw& draw) {
  using enum config::Recompute;
  config::Memory memory;
  memory.recompute = draw.of({none, selective, block});
  memory.recompute_every = draw.of<std::int64_t>({1, 1, 2});
  memory.activation_offload = draw.coin();
  memory.activation_offload_min_bytes = draw.of({Bytes{0}, Bytes{4096}});
  memory.activation_offload_in_flight = draw.of<std::int64_t>({1, 2});
  memory.offload = draw.of({config::Offload::none, config::Offload::optimizer, config::Offload::parameters});
  memory.offload_fraction = draw.of({1.0, 0.5});
  return memory;
}

config::RunConfig draw_run(Draw& draw, const model::Architecture& family, const test::TokenFiles& files, int ranks,
                           int steps) {
  config::RunConfig config = test::odd_run(files, steps);
  config.model = draw_model(draw);
  draw_tensor(draw, config, family, ranks);
  draw_family(draw, config.model, family);
  ranks /= static_cast<int>(config.mesh.tensor);
  config.mesh.replicate = draw.divisor_of(ranks, 3);
  config.sync = draw_sync(draw, ranks / config.mesh.replicate);
  config.memory = draw_memory(draw);
  config.data.seq_len = draw.between(5, 15);
  config.data.shuffle = draw.coin();
  if (draw.coin()) config.data.ignore_targets = {test::TokenFiles::silent_token, 20, 21, 22};
  config.data.document_mask = draw.coin();
  if (config.data.document_mask) config.data.document_end = draw.between(0, config.model.vocab_size - 1);
  config.loss.z_loss = draw.of({0.0, 1e-4, 1e-2});
  // Enough rows that no gradient is mostly rounding: else fp32 itself, not the job, decides where its update goes.
  const std::int64_t microbatch_rows = ranks * draw.of<std::int64_t>({1, 3, 4});
  config.batch.micro = (24 + microbatch_rows - 1) / microbatch_rows;
  config.batch.global = config.batch.micro * microbatch_rows;
  if (config.mesh.tensor > 1)
    config.mesh.sequence_parallel = draw.coin() && config.batch.micro * config.data.seq_len % config.mesh.tensor == 0;
  config.loss.chunk_tokens = draw.of<std::int64_t>({0, 0, 1, 7, 64});
  config.data.prefetch_batches = draw.between(1, 3);
  using enum config::Reduce;
  config.precision.reduce = draw.of({fp32, fp32, fp32, fp32, bf16_wire, bf16});
  config.optimizer.lr = 5e-4;
  config.optimizer.eps = 1e-6;  // a gradient that is all rounding makes no step of its own
  config.optimizer.clip_norm = draw.of({0.0, 1.0});
  config.lr.schedule = draw.of({config::LrSchedule::cosine, config::LrSchedule::linear, config::LrSchedule::constant});
  return config;
}

/// Without what differs from step to step, or moves.
void fit_graphs(config::RunConfig& config) {
  config.device.cuda_graphs = true;
  config.memory.activation_offload = false;
  config.data.ignore_targets.clear();
  config.data.document_mask = false;
}

/// Whether fp32 can hold the tolerance on this problem at all: a fifth of it lies between the plain program's curves in
/// fp32, from weights that are a rounding beside them, and in fp64. Peaked attention and few tokens make problems on
/// which rounding alone moves the curve further.
bool well_conditioned(const config::RunConfig& config, const test::Curve& fp32, const mpi::Communicator& world) {
  const test::Curve fp64 = test::plain_curve(config, world, {}, at::kDouble);
  constexpr double rounding = 1.2e-7;
  const test::Curve nudged[] = {test::plain_curve(config, world, {}, at::kFloat, rounding),
                                test::plain_curve(config, world, {}, at::kFloat, -rounding)};
  return std::ranges::all_of(std::array{&fp32, &nudged[0], &nudged[1]}, [&](const test::Curve* curve) {
    const test::Deviation found = test::deviation(*curve, fp64);
    return found.loss <= 2e-7 && found.grad_norm <= 2e-6;
  });
}

/// What of `trireme train` a job alone does not have. files: also validated on.
void draw_program(Draw& draw, config::RunConfig& config, const test::TokenFiles& files, const std::string& directory,
                  std::int64_t dp) {
  const std::int64_t steps = config.train.steps;
  config.run.output = directory + "/out";
  config.run.export_when = draw.of({config::Export::never, config::Export::end, config::Export::every_checkpoint});
  config.model.from = directory + "/weights";
  config.data.validation = files.sources();
  config.lr.end_step = steps;
  config.train.eval_every = draw.of<std::int64_t>({0, 3, 7});
  config.train.eval_steps = draw.between(1, 2);
  config.train.replica_check_every = draw.of<std::int64_t>({0, 1, 3});
  config.checkpoint.directory = config.run.output + "/checkpoints";
  config.checkpoint.every = draw.of<std::int64_t>({0, 4, 9});
  config.checkpoint.async = draw.coin();
  config.checkpoint.ranks_per_file = dp % 2 == 0 ? draw.of<std::int64_t>({1, 1, 2}) : 1;
  if (draw.coin()) config.metrics.trace_steps = {draw.between(1, 3), draw.between(4, steps)};
  config.metrics.memory_snapshot = draw.coin();
  config.metrics.tensorboard = draw.coin();
  config.comm.lane_threads = draw.of<std::optional<bool>>({std::nullopt, true, true, false});
  config.comm.backend = draw.of({config::Backend::automatic, config::Backend::mpi});
  config.comm.timeout_seconds = 600;
  config.device.type = config::DeviceType::cpu;
  config.device.threads = draw.between(1, 2);
}

/// The run's first weights as a Hugging Face directory.
void write_weights(const config::RunConfig& config, const std::string& directory) {
  config::RunConfig whole = config;
  whole.model.from.clear();
  whole.mesh = {};
  const test::Parameters values = test::whole_parameters(whole, test::lively_values(test::values_seed));
  const model::Model model = model::build(whole.model);
  huggingface::write_huggingface(directory, model, {.max_position_embeddings = 64}, [&](model::ParamRef ref) {
    const at::Tensor& value = values.at(model[ref].name);
    return std::span(value.const_data_ptr<float>(), static_cast<std::size_t>(value.numel()));
  });
}

/// The curve in the run's metrics.jsonl.
test::Curve curve_of(const config::RunConfig& config) {
  test::Curve curve;
  std::ifstream file(config.run.output + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const auto row = nlohmann::json::parse(line);
    if (!row.contains("loss")) continue;
    curve.losses.push_back(row["loss"].get<double>());
    curve.grad_norms.push_back(row["grad_norm"].get<double>());
    curve.z_losses.push_back(row.value("z_loss", 0.0));
  }
  return curve;
}

/// `trireme train` of the same run, ended in the middle and started again. The curve is on the first rank.
test::Curve run_program(const config::RunConfig& config, const mpi::Communicator& world, std::int64_t first_steps) {
  if (world.rank() == 0) write_weights(config, config.model.from);
  MPI_Barrier(world.handle());
  config::RunConfig first = config;
  first.train.steps = first_steps;
  std::erase_if(first.metrics.trace_steps, [&](std::int64_t step) { return step > first_steps; });
  EXPECT_EQ(run_training(first, world), ExitCode::done);
  EXPECT_EQ(run_training(config, world), ExitCode::done);
  return world.rank() == 0 ? curve_of(config) : test::Curve{};
}

/// How far from the plain program's a curve may be. Sums that travel or are kept as bf16 are off by their rounding.
struct Tolerance {
  double loss, grad_norm;
};
Tolerance tolerance_of(const config::RunConfig& config) {
  return config.precision.reduce == config::Reduce::fp32 ? Tolerance{1e-6, 1e-5} : Tolerance{1e-2, 1e-1};
}

/// A job beside whose lanes replicas are compared and memory is looked at, as a run does after its steps.
test::Curve run_job(Draw& draw, const config::RunConfig& config, const mpi::Communicator& world, JobOptions options) {
  const std::int64_t check_every = draw.of<std::int64_t>({1, 2, 5});
  options.record_timeline = draw.coin();
  options.ordered_collectives = draw.coin();
  options.host_threads = static_cast<int>(draw.between(1, 2));
  const bool records_memory = draw.coin();
  if (records_memory) device::record_memory(100'000);
  test::Curve curve = test::train_job(config, world, options, [&](Job& job, int step) {
                        (void)device::memory_use();
                        device::reset_peaks();
                        if (job.mesh().replicate > 1 && step % check_every == 0) {
                          EXPECT_NO_THROW(check_replicas(job));
                        }
                        if (options.record_timeline) (void)job.executor().timeline().take();
                      }).curve;
  if (records_memory) device::record_memory(0);
  return curve;
}

TEST(RandomParity, FollowsThePlainProgram) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  const test::TokenFiles files(world, 257);
  const std::vector<device::Gpu> gpus = device::probe_gpus().gpus;
  const int steps = gpus.empty() ? 20 : 4;  // a simulated GPU takes its time
  const char* seed = std::getenv("TRIREME_TEST_SEED");
  const unsigned long number = (seed != nullptr ? std::strtoul(seed, nullptr, 10) : 1) * 100 + world.size();
  Draw draw(number);
  const std::span<const model::Architecture> families = model::architectures();
  test::Deviation worst;
  int tried = 0, graphs = 0;
  for (int runs = 0; runs < draws && tried < 4 * draws; ++tried) {
    // Each draw has another family, each rank count begins with another one: no family is left out.
    const model::Architecture& family = families[(number + static_cast<unsigned long>(runs)) % families.size()];
    config::RunConfig config = draw_run(draw, family, files, world.size(), steps);
    JobOptions options = {.lane_threads = draw.coin(),
                          .transport = draw.of({comm::TransportChoice::mpi, comm::TransportChoice::shared_memory}),
                          .poison = true};
    if (!gpus.empty()) {
      options.device = device::use_gpu(world.rank() % static_cast<int>(gpus.size()));
      if (static_cast<int>(gpus.size()) >= world.size())
        options.link = draw.of({comm::DeviceLink::staged, comm::DeviceLink::nccl});
      options.control_over_link = options.link == comm::DeviceLink::nccl && draw.coin();
      if (config.mesh.tensor == 1 && draw.coin()) fit_graphs(config);
      config.model.sliding_window = 0;  // has no kernel there
      config.model.layer_types.clear();
    }
    const test::Curve expected = test::plain_curve(config, world);
    if (!well_conditioned(config, expected, world)) continue;
    ++runs;
    graphs += config.device.cuda_graphs ? 1 : 0;
    const auto compare = [&](const test::Curve& curve) {
      const test::Deviation found = test::deviation(curve, expected);
      EXPECT_LE(found.loss, tolerance_of(config).loss) << config::print_run_file(config);
      EXPECT_LE(found.grad_norm, tolerance_of(config).grad_norm) << config::print_run_file(config);
      if (config.precision.reduce == config::Reduce::fp32)
        worst = {std::max(worst.loss, found.loss), std::max(worst.grad_norm, found.grad_norm)};
    };
    compare(run_job(draw, config, world, options));
    if (!gpus.empty()) continue;
    const test::SharedDirectory directory(world);
    draw_program(draw, config, files, directory.path(), world.size() / config.mesh.tensor);
    const test::Curve curve = run_program(config, world, draw.between(1, steps - 1));
    if (world.rank() == 0) compare(curve);
  }
  EXPECT_LT(tried, 4 * draws) << "too few problems on which fp32 holds the tolerance";
  if (world.rank() == 0)
    std::printf(
        "largest deviations from the plain program: losses %.1e, gradient norms %.1e; %d of %d draws, %d with graphs\n",
        worst.loss, worst.grad_norm, draws, tried, graphs);
}

}  // namespace
}  // namespace trireme::train
