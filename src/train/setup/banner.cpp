// SPDX-License-Identifier: Apache-2.0
#include "train/setup/banner.hpp"

#include <fmt/format.h>

#include "trireme/base/build_info.hpp"
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
  return fmt::format("device   CPU{}\nproducts {}: forward, input gradient, weight gradient\n",
                     looked ? ": no GPU was found" : "", kernels::to_text(gemm));
}

}  // namespace

std::string banner(const Job& job, const BatchJob& batch_job, const mpi::Topology& topology, int threads,
                   const kernels::GemmChoice& gemm, const ComputeDevice& device) {
  const config::RunConfig& c = job.config();
  const model::Sizes& s = job.model().sizes;
  const auto replay_options =
      planner::replay_options_of(planner::computing_on(c, device.gpu.has_value()), job.resolved());
  std::string out = fmt::format("Trireme {} ({})  run {}\n", build_info().version, build_info().git_hash, c.run.name);
  if (const std::string batch = to_text(batch_job); !batch.empty()) out += fmt::format("job      {}\n", batch);
  out += fmt::format(
      "model    {} {} parameters: {} layers, hidden {}, intermediate {}, {} heads ({} kv) of {}, vocabulary {}{}\n",
      job.model().architecture, to_short_text(static_cast<double>(job.model().elements())), s.layers, s.hidden,
      s.intermediate, s.heads, s.kv_heads, s.head_dim, s.vocab, s.tied ? ", tied" : "");
  out += fmt::format("mesh     {} on {} node{}, {}\n", job.mesh().text(), topology.nodes,
                     topology.nodes == 1 ? "" : "s", job.transport_name());
  out += fmt::format("batch    {} sequences of {} tokens a step: {} microbatch{} of {} on each of {} dp ranks\n",
                     c.batch.global, c.data.seq_len, job.resolved().accumulation,
                     job.resolved().accumulation == 1 ? "" : "es", c.batch.micro, job.mesh().dp_size());
  out += fmt::format("step     {} compute, {} gradients, reshard after forward {}\n", to_text(c.precision.compute),
                     config::to_text(c.sync.policy), c.sync.reshard_after_forward == 1 ? "no" : "yes");
  out += fmt::format("threads  {} per rank, {} core{} on this node for {} rank{}; communication {}\n", threads,
                     topology.node_cores, topology.node_cores == 1 ? "" : "s", topology.node_ranks,
                     topology.node_ranks == 1 ? "" : "s",
                     device.gpu           ? "on streams of the GPU"
                     : job.lane_threads() ? "on separate threads"
                                          : "not overlapped: no spare core for communication threads");
  out += device_lines(job.config(), gemm, device, job.mesh().ranks());
  const planner::Memory memory = planner::replay_memory(job.schedule(), job.model(), job.layout(), replay_options);
  return out + planner::to_text(memory);
}

}  // namespace trireme::train
