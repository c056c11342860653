// SPDX-License-Identifier: Apache-2.0
#include "train/setup/banner.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "train/setup/stop_command.hpp"
#include "trireme/base/build_info.hpp"
#include "trireme/base/log.hpp"
#include "trireme/config/names.hpp"
#include "trireme/planner/replay.hpp"

namespace trireme::train {
namespace {

std::string device_lines(const config::RunConfig& config, const kernels::GemmChoice& gemm, const ComputeDevice& device,
                         int ranks) {
  if (device.gpu) {
    const char* link = device.link == comm::DeviceLink::nccl ? "over NCCL" : "staged through host memory";
    return fmt::format("device   {} with {}{}\n", device.gpu->name, to_text(device.gpu->memory),
                       ranks == 1 ? "" : fmt::format("; tensors travel {}", link));
  }
  const bool looked = config.device.type == config::DeviceType::automatic && device::built_for_gpus();
  log::debug(fmt::format("matrix products: {} (forward, input gradient, weight gradient)", kernels::to_text(gemm)));
  return fmt::format("device   CPU{}\n", looked ? ": no GPU was found" : "");
}

/// Number of epochs of the run.
std::string data_line(const config::RunConfig& c, std::int64_t samples) {
  const double epochs =
      static_cast<double>(c.train.steps) * static_cast<double>(c.batch.global) / static_cast<double>(samples);
  return fmt::format("data     {} sequences; {} {:.3g} epoch{}\n", samples,
                     c.train.steps == 1 ? "1 step is" : fmt::format("{} steps are", c.train.steps), epochs,
                     epochs == 1 ? "" : "s");
}

std::string packing_line(const data::PackingCounts& packing) {
  return fmt::format("packing  best fit: {:.2f}% padding, {:.2f}% of {} documents cut (concatenated: {:.2f}%)\n",
                     100 * packing.padding_share(), 100 * packing.cut_share(), packing.documents,
                     100 * packing.concatenated_cut_share());
}

/// When checkpoints are saved, and how to stop with one.
std::string saves_line(const config::RunConfig& c, const Environment& environment) {
  if (environment.is_trial) return "saves    nothing: this is a trial (--try)\n";
  const bool best = c.checkpoint.keep_best.has_value();
  if (c.checkpoint.every == 0 && !c.checkpoint.at_end && !best)
    return "saves    no checkpoints (checkpoint.every = 0, checkpoint.at_end = false)\n";
  std::vector<std::string> when;
  if (c.checkpoint.every > 0) when.push_back(fmt::format("every {} steps", c.checkpoint.every));
  if (c.checkpoint.at_end) when.emplace_back("at the end");
  if (best) when.emplace_back("the best one");
  return fmt::format("saves    {} to {}; to save and stop: {}\n", fmt::join(when, " and "), c.checkpoint.directory,
                     stop_command(environment.batch_job));
}

/// Behind the compute type.
std::string fp8_text(const config::Precision& precision) {
  if (precision.fp8 == Fp8::none) return "";
  if (precision.fp8 == Fp8::tensorwise)
    log::warning(
        "precision.fp8 = tensorwise: scales depend on how ranks and microbatches divide a batch, and so do losses; set "
        "rowwise or mx for losses that do not");
  return fmt::format(" with {} fp8 products", config::to_text(precision.fp8));
}

}  // namespace

std::string banner(const Job& job, const Environment& environment, const kernels::GemmChoice& gemm,
                   std::int64_t samples, const std::optional<data::PackingCounts>& packing) {
  const mpi::Topology& topology = environment.topology;
  const ComputeDevice& device = environment.device;
  const config::RunConfig& c = job.config();
  const model::Sizes& s = job.model().sizes;
  const auto replay_options =
      planner::replay_options_of(planner::computing_on(c, device.gpu.has_value()), job.resolved());
  std::string out = fmt::format("Trireme {} ({})  run {}\n", build_info().version, build_info().git_hash, c.run.name);
  if (const std::string batch = to_text(environment.batch_job); !batch.empty())
    out += fmt::format("job      {}\n", batch);
  out += fmt::format(
      "model    {} {} parameters: {} layers, hidden {}, intermediate {}, {} heads ({} kv) of {}, vocabulary {}{}\n",
      job.model().architecture, to_short_text(static_cast<double>(job.whole_model().elements())), s.layers, s.hidden,
      s.intermediate, s.heads, s.kv_heads, s.head_dim, s.vocab, s.tied ? ", tied" : "");
  out += fmt::format("mesh     {} on {} node{}, {}\n", job.mesh().text(), topology.nodes,
                     topology.nodes == 1 ? "" : "s", job.transport_name());
  out += fmt::format("batch    {} sequences of {} tokens a step: {} microbatch{} of {} on each of {} dp ranks\n",
                     c.batch.global, c.data.seq_len, job.resolved().accumulation,
                     job.resolved().accumulation == 1 ? "" : "es", c.batch.micro, job.mesh().dp_size());
  out += data_line(c, samples);
  if (packing) out += packing_line(*packing);
  out += fmt::format("step     {} compute{}, {} gradients, reshard after forward {}\n", to_text(c.precision.compute),
                     fp8_text(c.precision), config::to_text(c.sync.policy),
                     c.sync.reshard_after_forward == 1 ? "no" : "yes");
  out += fmt::format("threads  {} per rank, {} core{} on this node for {} rank{}{}\n", environment.threads,
                     topology.node_cores, topology.node_cores == 1 ? "" : "s", topology.node_ranks,
                     topology.node_ranks == 1 ? "" : "s",
                     device.gpu           ? "; communication on streams of the GPU"
                     : job.lane_threads() ? "; communication on separate threads"
                                          : "");
  if (!device.gpu && !job.lane_threads()) log::debug("communication is not overlapped: no spare core for its threads");
  out += saves_line(c, environment);
  out += device_lines(job.config(), gemm, device, job.mesh().ranks());
  const planner::Memory memory = planner::replay_memory(job.schedule(), job.model(), job.layout(), replay_options);
  return out + planner::to_text(memory);
}

}  // namespace trireme::train
