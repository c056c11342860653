// SPDX-License-Identifier: Apache-2.0
#include "train/setup/environment.hpp"

#include <string>

#include "train/setup/gemm.hpp"
#include "train/setup/host_cores.hpp"
#include "train/setup/nvlink.hpp"
#include "trireme/base/log.hpp"
#include "trireme/mpi/collective_try.hpp"
#include "trireme/train/setup/threads.hpp"

namespace trireme::train {

Environment take_environment(const config::RunConfig& config, const mpi::Communicator& world) {
  Environment found;
  found.batch_job = batch_job();
  found.topology = mpi::probe_topology(world);
  found.threads = use_threads(found.topology, config.device.threads);
  found.device = choose_device(config, world);
  if (!found.device.gpu) agree_on_gemm(world);
  return found;
}

JobOptions job_options(const config::RunConfig& config, const Environment& environment) {
  return {.lane_threads = config.comm.lane_threads,
          .host_threads = host_threads(environment.topology, environment.threads, environment.device.gpu.has_value()),
          .transport = config.comm.backend == config::Backend::mpi ? comm::TransportChoice::mpi
                                                                   : comm::TransportChoice::automatic,
          .device = environment.device.device,
          .link = environment.device.link,
          .nccl = {.max_ctas = static_cast<int>(config.comm.nccl_max_ctas),
                   .windows = config.comm.nccl_windows,
                   .copy_engines = config.comm.nccl_copy_engines,
                   .bf16_wire = config.precision.reduce == config::Reduce::bf16_wire,
                   .nvlink_domain = environment.device.gpu ? nvlink_domain(*environment.device.gpu) : ""},
          .control_over_link = config.comm.backend == config::Backend::nccl,
          .record_timeline = !config.metrics.trace_steps.empty()};
}

void warn_of_few_cores(const Environment& environment, const mpi::Communicator& world) {
  const std::string text = too_few_cores(environment.batch_job, environment.topology, environment.threads);
  try {
    mpi::collective_try(world, "count the cores", [&] {
      if (!text.empty()) throw EnvironmentError(text);
    });
  } catch (const mpi::CollectiveError& error) {
    if (world.rank() == 0) log::warning(error.what());
  }
}

}  // namespace trireme::train
