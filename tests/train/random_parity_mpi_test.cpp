// SPDX-License-Identifier: Apache-2.0
//
// Random combinations: random models, meshes, policies and switches of the executor against the plain program, once as
// a job and once as `trireme train` runs it: with metrics, traces, snapshots, evaluations, replica checks, saves, the
// best checkpoint, exports, and a restart in the middle, in some runs on more ranks. TRIREME_TEST_SEED draws others. In
// simulated_gpu.mpi_tests on that GPU, with CUDA graphs.
//
// ranks: 1 2 3 4 6 8
//
// labels: slow
//
// timeout: 1800
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "support/fuzz.hpp"
#include "support/jobs.hpp"
#include "support/nccl_ranks.hpp"
#include "support/random_runs.hpp"
#include "support/tensors.hpp"
#include "train/engine/replicas.hpp"
#include "trireme/config/load.hpp"
#include "trireme/device/buffer.hpp"
#include "trireme/device/gpus.hpp"
#include "trireme/device/history.hpp"
#include "trireme/huggingface/huggingface.hpp"
#include "trireme/kernels/gemm_library.hpp"
#include "trireme/model/architecture.hpp"
#include "trireme/train/run.hpp"

namespace trireme::train {
namespace {

/// Without what differs from step to step, or moves.
void fit_graphs(config::RunConfig& config) {
  config.device.cuda_graphs = true;
  config.memory.activation_offload = false;
  config.data.ignore_targets.clear();
  config.data.document_mask = false;
}

/// How far from the plain program's a curve may be.
struct Tolerance {
  double loss, grad_norm;
};
constexpr Tolerance fp32_tolerance{1e-6, 1e-5};

bool is_muon(const config::RunConfig& config) { return config.optimizer.name == config::OptimizerName::muon; }

/// Whether fp32 can reach the tolerance on this problem: the plain program's curves in fp32, in fp64, and from weights
/// changed by a rounding differ by at most a fifth of it. With peaked attention and few tokens, rounding alone can move
/// the curve further; so it can if two experts are almost equally good for a token.
bool well_conditioned(const config::RunConfig& config, const test::Curve& fp32, const mpi::Communicator& world) {
  if (fp32.router_margin < 5e-6) return false;
  const test::Curve fp64 = test::plain_curve(config, world, {}, at::kDouble);
  const auto near = [&](const test::Curve& curve) {
    const test::Deviation found = test::deviation(curve, fp64);
    return found.loss <= fp32_tolerance.loss / 5 && found.grad_norm <= fp32_tolerance.grad_norm / 5;
  };
  constexpr double rounding = 1.2e-7;
  return near(fp32) && near(test::plain_curve(config, world, {}, at::kFloat, rounding)) &&
         near(test::plain_curve(config, world, {}, at::kFloat, -rounding));
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
    const auto number = [&](const char* key) {
      return row[key].is_null() ? std::numeric_limits<double>::quiet_NaN() : row[key].get<double>();
    };
    curve.losses.push_back(number("loss"));
    curve.grad_norms.push_back(number("grad_norm"));
    curve.z_losses.push_back(row.contains("z_loss") ? number("z_loss") : 0.0);
    curve.router_losses.push_back(row.value("balance_loss", 0.0) + row.value("router_z_loss", 0.0));
  }
  return curve;
}

/// The same run sharded over `ranks` ranks.
config::RunConfig sharded(config::RunConfig config, int ranks) {
  config.mesh = {};
  config.context = {};
  config.pipeline = {};
  config.sync = {};
  config.checkpoint.ranks_per_file = 1;
  config.batch.micro = std::gcd(config.batch.micro, config.batch.global / ranks);
  return config;
}

/// Expects the link `best` of checkpoint.keep_best at the step with the lowest validation loss in metrics.jsonl, and no
/// link where no evaluation had a target that counts.
void expect_best(const config::RunConfig& config) {
  if (!config.checkpoint.keep_best) return;
  const std::string& set = *config.checkpoint.keep_best;
  double lowest = std::numeric_limits<double>::infinity();
  std::int64_t best = -1, evaluations = 0;
  std::ifstream file(config.run.output + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const auto row = nlohmann::json::parse(line);
    if (row.contains("loss")) continue;
    ++evaluations;
    const auto& value = set.empty() ? row["eval_loss"] : row["eval_losses"][set];
    if (value.is_null()) continue;
    const double loss = value;
    if (loss >= lowest) continue;
    lowest = loss;
    best = row["step"];
  }
  ASSERT_GE(evaluations, 1);
  const std::string link = config.checkpoint.directory + "/best";
  if (best < 0) {
    EXPECT_FALSE(std::filesystem::is_symlink(link)) << config::print_run_file(config);
    return;
  }
  ASSERT_TRUE(std::filesystem::is_symlink(link)) << config::print_run_file(config);
  EXPECT_EQ(std::filesystem::read_symlink(link).filename(), fmt::format("step-{:08}", best))
      << config::print_run_file(config);
}

/// `trireme train` of the same run, ended in the middle and started again, in some runs begun on fewer ranks. The curve
/// is on the first rank.
test::Curve run_program(const config::RunConfig& config, const mpi::Communicator& world, std::int64_t first_steps,
                        test::Draw& draw) {
  if (world.rank() == 0) write_weights(config, config.model.from);
  MPI_Barrier(world.handle());
  config::RunConfig first = config;
  first.train.steps = first_steps;
  std::erase_if(first.metrics.trace_steps, [&](std::int64_t step) { return step > first_steps; });
  int ranks = world.size();
  if (draw.coin()) ranks = static_cast<int>(draw.between(1, ranks));
  while (config.batch.global % ranks != 0) --ranks;
  if (ranks < world.size()) first = sharded(first, ranks);
  const mpi::Communicator beginning = world.split(world.rank() < ranks ? 0 : 1, world.rank());
  if (world.rank() < ranks) {
    EXPECT_EQ(run_training(first, beginning), ExitCode::done);
  }
  MPI_Barrier(world.handle());
  EXPECT_EQ(run_training(config, world), ExitCode::done);
  if (world.rank() == 0) expect_best(config);
  return world.rank() == 0 ? curve_of(config) : test::Curve{};
}

/// Sums that travel or are kept as bf16 are off by their rounding; moments in bf16 are rounded the other way where
/// gradients differ by rounding.
Tolerance tolerance_of(const config::RunConfig& config) {
  if (config.precision.reduce != config::Reduce::fp32) return {1e-2, 1e-1};
  return config.precision.moments == DType::fp32 ? fp32_tolerance : Tolerance{1e-5, 2e-4};
}

/// Any library for each product of each shape class; at:: in place of one that does not run on this CPU.
kernels::GemmChoice draw_gemm(test::Draw& draw) {
  const auto library = [&] {
    const auto drawn = draw.of({kernels::GemmLibrary::at, kernels::GemmLibrary::onednn, kernels::GemmLibrary::blocked});
    return kernels::runs_here(drawn, at::kFloat) ? drawn : kernels::GemmLibrary::at;
  };
  kernels::GemmChoice choice;
  for (kernels::GemmChoice::Products* products : {&choice.fp32.wide, &choice.fp32.narrow}) {
    products->forward = library();
    products->backward_input = library();
    products->backward_weight = library();
  }
  return choice;
}

/// A job with comparisons of replicas and readings of memory between steps, as in a run.
test::Curve run_job(test::Draw& draw, const config::RunConfig& config, const mpi::Communicator& world,
                    JobOptions options) {
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

/// `draws` runs of these families, which TRIREME_TEST_SEED, the rank count and `stream` number.
void follow_the_plain_program(const std::vector<const model::Architecture*>& families, int draws, int stream) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  const test::TokenFiles files(world, 257);
  const std::vector<device::Gpu> gpus = device::probe_gpus().gpus;
  const int steps = !gpus.empty() ? 4 : test::tries_everything() ? 20 : 12;  // a simulated GPU takes its time
  const char* seed = std::getenv("TRIREME_TEST_SEED");
  const unsigned long number = (seed != nullptr ? std::strtoul(seed, nullptr, 10) : 1) * 100 + world.size() + stream;
  test::Draw draw(number), axes_draw(number + 50), switches_draw(number + 70), silence_draw(number + 90);
  test::Draw tokens_draw(number + 100), restart_draw(number + 110), moments_draw(number + 120),
      optimizer_draw(number + 130), muon_draw(number + 140);
  test::Deviation worst, worst_rounded, worst_of_muon;
  int runs = 0, tried = 0, rejected = 0, graphs = 0, pipelines = 0, divided = 0, rounded = 0, muon = 0;
  for (; runs < draws && tried < 8 * draws; ++tried) {
    // Each draw has another family, each rank count begins with another one: no family is left out. After eight
    // problems of one that fp32 does not hold it is the next one's turn.
    const int turn = runs + rejected / 8;
    const model::Architecture& family = *families[(number + static_cast<unsigned long>(turn)) % families.size()];
    config::RunConfig config = test::draw_run(draw, &axes_draw, family, files, world.size(), steps);
    JobOptions options = {.lane_threads = draw.coin(),
                          .transport = draw.of({comm::TransportChoice::mpi, comm::TransportChoice::shared_memory}),
                          .poison = true};
    if (gpus.empty() && options.transport == comm::TransportChoice::shared_memory) {
      options.small_windows = switches_draw.coin();
      options.poison = !options.small_windows;  // or gathers would not share one memory
    }
    if (!gpus.empty()) {
      options.device = device::use_gpu(world.rank() % static_cast<int>(gpus.size()));
      if (test::nccl_ranks_fit(world)) options.link = draw.of({comm::DeviceLink::staged, comm::DeviceLink::nccl});
      options.control_over_link = options.link == comm::DeviceLink::nccl && draw.coin();
      options.nccl.windows = config.comm.nccl_windows = options.link == comm::DeviceLink::nccl && draw.coin();
      options.nccl.bf16_wire = config.precision.reduce == config::Reduce::bf16_wire;
      const bool one =
          config.mesh.tensor == 1 && config.mesh.pipeline == 1 && config.mesh.context == 1 && !family.decoder.experts;
      if (one && draw.coin()) fit_graphs(config);
    }
    if (!config.device.cuda_graphs) {
      if (tokens_draw.coin())
        test::draw_tokens(tokens_draw, config.data, files);
      else
        test::draw_silence(silence_draw, config, files);
    }
    config.precision.moments = moments_draw.of({DType::fp32, DType::bf16});
    config.train.skip_spikes = optimizer_draw.coin();  // no step of so few is one
    config.metrics.block_norms = optimizer_draw.coin();
    if (optimizer_draw.coin())
      config.optimizer.groups = {{.names = {"*o_proj*", "*c_proj*"}, .lr = 0.5, .weight_decay = 0.5},
                                 {.names = {"*norm*", "*.ln_*"}, .lr = 2},
                                 {.names = {"*.0.*"}, .lr = 0}};
    if (gpus.empty() && muon_draw.coin()) {
      config.optimizer.name = config::OptimizerName::muon;
      config.optimizer.nesterov = muon_draw.coin();
      config.optimizer.scale =
          muon_draw.of({config::MuonScale::moonlight, config::MuonScale::jordan, config::MuonScale::spectral});
      if (muon_draw.coin()) config.optimizer.adamw = {"*.0.*", "*down_proj*"};
      config.optimizer.window_bytes = muon_draw.of({Bytes{1}, Bytes{1 << 30}});
      config.precision.moments = DType::fp32;
    }
    const test::Curve expected = test::plain_curve(config, world);
    if (!well_conditioned(config, expected, world)) {
      ++rejected;
      continue;
    }
    ++runs;
    rejected = rejected / 8 * 8;
    graphs += config.device.cuda_graphs ? 1 : 0;
    pipelines += config.mesh.pipeline > 1 ? 1 : 0;
    divided += config.mesh.context > 1 ? 1 : 0;
    muon += is_muon(config) ? 1 : 0;
    rounded += config.precision.moments == DType::bf16 ? 1 : 0;
    const auto compare = [&](const test::Curve& curve) {
      const test::Deviation found = test::deviation(curve, expected);
      EXPECT_LE(found.loss, tolerance_of(config).loss) << config::print_run_file(config);
      EXPECT_LE(found.grad_norm, tolerance_of(config).grad_norm) << config::print_run_file(config);
      if (config.precision.reduce != config::Reduce::fp32) return;
      test::Deviation& most = is_muon(config)                           ? worst_of_muon
                              : config.precision.moments == DType::fp32 ? worst
                                                                        : worst_rounded;
      most = {std::max(most.loss, found.loss), std::max(most.grad_norm, found.grad_norm)};
    };
    kernels::set_gemm_choice(draw_gemm(switches_draw));
    compare(run_job(draw, config, world, options));
    kernels::set_gemm_choice({});
    if (!gpus.empty()) continue;
    const test::SharedDirectory directory(world);
    test::draw_program(draw, config, files, directory.path(), world.size() / config.mesh.tensor / config.mesh.pipeline);
    test::draw_validation(restart_draw, config, files);
    const test::Curve curve = run_program(config, world, draw.between(1, steps - 1), restart_draw);
    if (world.rank() == 0) compare(curve);
  }
  EXPECT_EQ(runs, draws) << "too few problems on which fp32 holds the tolerance";
  if (world.rank() == 0)
    std::printf(
        "largest deviations from the plain program: losses %.1e, gradient norms %.1e, with moments in bf16 %.1e and "
        "%.1e, with Muon %.1e and %.1e; %d of %d draws, %d with graphs, %d with pipelines, %d with divided sequences, "
        "%d with moments in bf16, %d with Muon\n",
        worst.loss, worst.grad_norm, worst_rounded.loss, worst_rounded.grad_norm, worst_of_muon.loss,
        worst_of_muon.grad_norm, runs, tried, graphs, pipelines, divided, rounded, muon);
}

std::vector<const model::Architecture*> families_with(bool experts) {
  std::vector<const model::Architecture*> families;
  for (const model::Architecture& family : model::architectures())
    if (family.decoder.experts.has_value() == experts) families.push_back(&family);
  return families;
}

/// Runs of these families with masters of either kind, numbered as above.
void split_masters_give_the_bits_of_fp32(const std::vector<const model::Architecture*>& families, int stream) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  const test::TokenFiles files(world, 257);
  const std::vector<device::Gpu> gpus = device::probe_gpus().gpus;
  const char* seed = std::getenv("TRIREME_TEST_SEED");
  const unsigned long number = (seed != nullptr ? std::strtoul(seed, nullptr, 10) : 1) * 100 + world.size() + stream;
  test::Draw draw(number), axes_draw(number + 50);
  for (int run = 0; run < (gpus.empty() ? 4 : 2); ++run) {
    const model::Architecture& family = *families[(number + static_cast<unsigned long>(run)) % families.size()];
    config::RunConfig config = test::draw_run(draw, &axes_draw, family, files, world.size(), 3);
    config.precision.compute = DType::bf16;
    JobOptions options = {.lane_threads = draw.coin()};
    if (!gpus.empty()) options.device = device::use_gpu(world.rank() % static_cast<int>(gpus.size()));
    const test::Outcome fp32 = test::train_job_from_ties(config, world, options, true);
    config.precision.masters = config::Masters::split;
    const test::Outcome split = test::train_job_from_ties(config, world, options, false);
    EXPECT_EQ(split.curve, fp32.curve) << config::print_run_file(config);
    for (std::size_t b = 0; b < fp32.masters.size(); ++b)
      EXPECT_TRUE(test::same_bits(device::on_host(split.masters[b]), device::on_host(fp32.masters[b])))
          << config::print_run_file(config);
  }
}

TEST(RandomParity, SplitMastersGiveTheBitsOfFp32RoundedAway) {
  split_masters_give_the_bits_of_fp32(families_with(false), 40);
}

TEST(RandomParity, OfExpertsSplitMastersGiveTheBitsOfFp32RoundedAway) {
  split_masters_give_the_bits_of_fp32(families_with(true), 45);
}

TEST(RandomParity, FollowsThePlainProgram) { follow_the_plain_program(families_with(false), 6, 0); }

TEST(RandomParity, OfExpertsFollowsThePlainProgram) { follow_the_plain_program(families_with(true), 2, 20); }

}  // namespace
}  // namespace trireme::train
