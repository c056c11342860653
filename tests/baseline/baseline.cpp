// SPDX-License-Identifier: Apache-2.0
//
// Records what a restructuring of the sources must not change, for tests/baseline/baseline.py, which starts it under
// MPI: one GoogleTest for each part of a recording. Linked with the simulated GPU; jobs on CPUs run as in any other
// program. Environment: TRIREME_BASELINE_OUT, the file that rank 0 writes; TRIREME_BASELINE_CASES, the number of runs
// drawn; TRIREME_BASELINE_DEVICE, cpu or gpu, for Runs.
//
// A file consists of sections: a line `== title`, then lines of text. Two builds are compared section by section.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "support/jobs.hpp"
#include "support/nccl_ranks.hpp"
#include "support/random_runs.hpp"
#include "support/simulated_gpu/engine.hpp"
#include "support/training/mixtures.hpp"
#include "train/engine/job_schedules.hpp"
#include "trireme/base/error.hpp"
#include "trireme/config/load.hpp"
#include "trireme/data/text/xxh3.hpp"
#include "trireme/device/buffer.hpp"
#include "trireme/device/gpus.hpp"
#include "trireme/model/architecture.hpp"
#include "trireme/planner/replay.hpp"
#include "trireme/schedule/needs.hpp"
#include "trireme/schedule/text.hpp"
#include "trireme/train/engine/job.hpp"

namespace trireme::train {
namespace {

std::string setting(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr) throw ConfigError(fmt::format("{} is not set: tests/baseline/baseline.py starts this", name));
  return value;
}

/// The file of a recording; written by rank 0 only.
class Recorder {
 public:
  explicit Recorder(const mpi::Communicator& world) {
    if (world.rank() == 0) file_.open(setting("TRIREME_BASELINE_OUT"));
  }
  void section(const std::string& title) { line("== " + title); }
  void line(const std::string& text) {
    if (file_.is_open()) file_ << text << '\n';
  }

 private:
  std::ofstream file_;
};

/// The run file without the temporary directory of its data.
std::string run_file(const config::RunConfig& config) {
  std::string text = config::print_run_file(config);
  for (const config::TokenSource& source : config.data.train) {
    const std::string directory = source.path.substr(0, source.path.rfind('/') + 1);
    for (std::size_t at = text.find(directory); at != std::string::npos; at = text.find(directory))
      text.erase(at, directory.size());
  }
  return text;
}

std::string text_of(schedule::Reason reason) {
  using enum schedule::Reason;
  switch (reason) {
    case read_after_write: return "read after write";
    case write_after_read: return "write after read";
    case write_after_write: return "write after write";
    case lane_order: return "lane order";
  }
  throw BugError("a reason is not listed");
}

/// Edges by the text of their ops, sorted: independent of op numbers.
std::vector<std::string> edges(const schedule::Schedule& step, const model::Model& model) {
  std::vector<std::string> names, lines;
  for (const schedule::Op& op : step.ops) names.push_back(schedule::print(op, model));
  const auto name = [&](int op) { return names.at(static_cast<std::size_t>(op)); };
  for (const schedule::Need& need : schedule::needs(step, model))
    lines.push_back(fmt::format("need {} => {}, distance {}, {}", name(need.from), name(need.to), need.distance,
                                text_of(need.reason)));
  std::ranges::sort(lines);
  return lines;
}

/// Schedule, needs, replayed memory and traffic of one rank.
void record_rank(Recorder& out, const config::RunConfig& config, const config::Resolved& mesh, Rank rank, bool gpu) {
  const mesh::Coordinates at = mesh.coordinates(rank);
  const JobSchedules schedules = job_schedules(config, mesh, at, gpu);
  const shard::Layout layout(schedules.held, mesh.shards());
  planner::ReplayOptions options = planner::replay_options_of(planner::computing_on(config, gpu), mesh);
  options.shard_rank = mesh.shard_of(at);
  out.line(schedule::print(schedules.step, schedules.held));
  out.line(schedule::print(schedules.forward, schedules.held));
  for (const std::string& edge : edges(schedules.step, schedules.held)) out.line(edge);
  const planner::Memory memory = planner::replay_memory(schedules.step, schedules.held, layout, options);
  out.line(planner::to_text(memory));
  out.line(fmt::format("bytes: total {}, activations {}, workspace {}, outside {}, host {}", memory.total().value,
                       memory.activations.value, memory.workspace.value, memory.outside.value,
                       memory.host.total().value));
  out.line(planner::to_text(planner::replay_traffic(schedules.step, schedules.held, layout, options)));
}

/// The family of the n-th draw: every family, then again.
const model::Architecture& family_of(int draw) {
  const auto& all = model::architectures();
  return *(std::begin(all) + draw % static_cast<int>(std::ssize(all)));
}

TEST(Baseline, Configurations) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  const test::TokenFiles files(world, 257);
  Recorder out(world);
  const int cases = std::stoi(setting("TRIREME_BASELINE_CASES"));
  constexpr std::array rank_counts{1, 2, 3, 4, 6, 8, 12, 16, 24, 48};
  int refused = 0;
  for (int i = 0; i < cases; ++i) {
    test::Draw draw(7000 + static_cast<unsigned>(i)), axes(8000 + static_cast<unsigned>(i));
    const int ranks = rank_counts.at(static_cast<std::size_t>(i) % rank_counts.size());
    config::RunConfig config = test::draw_run(draw, &axes, family_of(i), files, ranks, 5);
    config.precision.compute = draw.of({DType::fp32, DType::bf16});
    const bool gpu = draw.coin();
    out.section(
        fmt::format("configuration {}: {} on {} {}", i, config.model.architecture, ranks, gpu ? "GPUs" : "CPUs"));
    out.line(run_file(config));
    try {
      const config::Resolved mesh = config::resolve(config, ranks);
      record_rank(out, config, mesh, Rank{0}, gpu);
      if (ranks > 1) record_rank(out, config, mesh, Rank{ranks - 1}, gpu);
    } catch (const ConfigError&) {
      out.line("refused");
      ++refused;
    }
  }
  EXPECT_LE(refused, cases / 10) << "too few of the configurations drawn can run";
}

/// XXH3 of a state of all blocks of this rank.
std::uint64_t digest(Job& job, const std::function<at::Tensor(ParamBlock)>& state) {
  data::Xxh3 sum;
  for (int b = 0; b < job.model().param_blocks(); ++b) {
    const at::Tensor here = device::on_host(state(ParamBlock{b})).contiguous();
    sum.add({static_cast<const std::byte*>(here.const_data_ptr()), static_cast<std::size_t>(here.nbytes())});
  }
  return sum.value();
}

/// Digests of masters and moments after the last step, by rank, and the curve to the last bit.
void record_run(Recorder& out, const config::RunConfig& config, const mpi::Communicator& world,
                const JobOptions& options) {
  std::array<std::uint64_t, 3> mine{};
  const test::Outcome outcome = test::train_job(config, world, options, [&](Job& job, int step) {
    if (step + 1 != config.train.steps) return;
    job.finish_updates();
    mine = {digest(job, [&](ParamBlock b) { return job.store().masters(b); }),
            digest(job, [&](ParamBlock b) { return job.store().state(b, 0); }),
            digest(job, [&](ParamBlock b) { return job.store().state(b, 1); })};
  });
  std::vector<std::uint64_t> all(mine.size() * static_cast<std::size_t>(world.size()));
  MPI_Gather(mine.data(), static_cast<int>(mine.size()), MPI_UINT64_T, all.data(), static_cast<int>(mine.size()),
             MPI_UINT64_T, 0, world.handle());
  for (std::size_t i = 0; i < outcome.curve.losses.size(); ++i)
    out.line(fmt::format("step {}: loss {:a}, z-loss {:a}, router losses {:a}, gradient norm {:a}", i + 1,
                         outcome.curve.losses[i], outcome.curve.z_losses[i], outcome.curve.router_losses[i],
                         outcome.curve.grad_norms[i]));
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(world.size()); ++rank)
    out.line(fmt::format("rank {}: masters {:016x}, first moments {:016x}, second moments {:016x}", rank, all[3 * rank],
                         all[3 * rank + 1], all[3 * rank + 2]));
}

/// This rank's simulated GPU, whose tensors go over NCCL where `nccl` and the ranks allow it.
JobOptions gpu_options(const mpi::Communicator& world, bool nccl) {
  JobOptions options;
  options.device = device::use_gpu(world.rank() % static_cast<int>(device::probe_gpus().gpus.size()));
  if (nccl && test::nccl_ranks_fit(world)) options.link = comm::DeviceLink::nccl;
  return options;
}

TEST(Baseline, Runs) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  const test::TokenFiles files(world, 257);
  Recorder out(world);
  const int cases = std::stoi(setting("TRIREME_BASELINE_CASES"));
  const bool gpu = setting("TRIREME_BASELINE_DEVICE") == "gpu";
  const unsigned first = 1000 * static_cast<unsigned>(world.size()) + (gpu ? 500 : 0);
  for (int i = 0; i < cases; ++i) {
    test::Draw draw(first + static_cast<unsigned>(i)), axes(100'000 + first + static_cast<unsigned>(i));
    config::RunConfig config = test::draw_run(draw, &axes, family_of(i + world.size()), files, world.size(), 5);
    config.precision.compute = i % 2 == 0 ? DType::fp32 : DType::bf16;
    if (config.precision.compute == DType::bf16)
      config.precision.masters = draw.of({config::Masters::fp32, config::Masters::split});
    JobOptions options = gpu ? gpu_options(world, draw.coin()) : JobOptions{};
    options.nccl.bf16_wire = config.precision.reduce == config::Reduce::bf16_wire;
    options.lane_threads = draw.coin();
    if (options.link == comm::DeviceLink::nccl) options.lane_threads.reset();
    options.poison = draw.coin();
    out.section(fmt::format("run {}: {} on {} {}", i, config.model.architecture, world.size(), gpu ? "GPUs" : "CPUs"));
    out.line(run_file(config));
    record_run(out, config, world, options);
  }
}

/// Launches of the second step, in order.
void record_launches(Recorder& out, const std::string& title, const config::RunConfig& config,
                     const mpi::Communicator& world, JobOptions options) {
  std::vector<std::string> launches;
  std::mutex mutex;
  options.lane_threads = false;
  const auto listen = [&](const std::string& launch) {
    const std::scoped_lock lock(mutex);
    launches.push_back(fmt::format("stream {}: {}", test::gpu::current_stream(), launch));
  };
  Job job(config, world, options);
  job.store().fill(test::lively_values(test::values_seed));
  data::BatchReader reader(config.data, data::Split::train, config.model.vocab_size, config.run.seed, job.batch_shape(),
                           {});
  (void)job.step(reader.next(), 1e-3, true);
  const data::StepBatch batch = reader.next();
  test::gpu::launch_listener() = listen;
  (void)job.step(batch, 1e-3, true);
  test::gpu::launch_listener() = nullptr;
  out.section(fmt::format("launches of a step: {} on {} GPUs", title, world.size()));
  for (const std::string& launch : launches) out.line(launch);
  out.line(fmt::format("{} launches", launches.size()));
}

TEST(Baseline, Launches) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  const test::TokenFiles files(world, 257);
  Recorder out(world);
  for (const DType compute : {DType::fp32, DType::bf16}) {
    const JobOptions options = gpu_options(world, true);
    const std::string type = compute == DType::fp32 ? " in fp32" : " in bf16";
    const auto record = [&](const std::string& title, config::RunConfig config) {
      config.batch = {.global = 8, .micro = 2};
      config.precision.compute = compute;
      record_launches(out, title + type, config, world, options);
    };
    record("Llama", test::odd_run(files, 2));
    record("GPT-2", test::gpt2_run(files, 2));
    record("Qwen3-MoE", test::odd_mixture(files, 2));
    config::RunConfig recomputed = test::odd_run(files, 2);
    recomputed.memory.recompute = config::Recompute::block;
    record("Llama, recomputed", recomputed);
    if (world.size() == 1) continue;
    config::RunConfig tensor = test::odd_run(files, 2);
    tensor.mesh.tensor = 2;
    record("Llama, tensor ranks", tensor);
    config::RunConfig context = test::odd_run(files, 2);
    context.mesh.context = 2;
    context.data.seq_len = 16;
    record("Llama, context ranks", context);
    config::RunConfig expert = test::odd_mixture(files, 2);
    expert.mesh.expert = 2;
    record("Qwen3-MoE, expert ranks", expert);
  }
}

}  // namespace
}  // namespace trireme::train
