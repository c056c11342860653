// SPDX-License-Identifier: Apache-2.0
#include "trireme/timeline/kernels.hpp"

#include <fmt/format.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <exception>
#include <set>

#include "trireme/base/log.hpp"

namespace trireme::timeline {
namespace {

namespace impl = torch::profiler::impl;

/// A time of Kineto's, in nanoseconds since 1970, on the steady clock.
Clock::time_point steady(std::uint64_t nanoseconds, std::chrono::nanoseconds steady_minus_system) {
  return Clock::time_point(std::chrono::nanoseconds(static_cast<std::int64_t>(nanoseconds)) + steady_minus_system);
}

}  // namespace

KernelRecording::KernelRecording(bool gpu) : gpu_(gpu) {
  impl::ExperimentalConfig details;
  details.disable_external_correlation = true;  // the operator of a kernel is not needed: the lanes' spans show it
  const impl::ProfilerConfig config(impl::ProfilerState::KINETO, false, false, false, false, false, details);
  const std::set<impl::ActivityType> activities{gpu ? impl::ActivityType::CUDA : impl::ActivityType::CPU};
  torch::autograd::profiler::prepareProfiler(config, activities);
  torch::autograd::profiler::enableProfiler(config, activities);
}

KernelRecording::~KernelRecording() {
  if (!running_) return;
  try {
    (void)end();
  } catch (const std::exception& error) {  // such as an error that ends the run anyway
    log::warning(fmt::format("metrics.trace_steps: the profiler could not be stopped: {}", error.what()));
  }
}

std::vector<Kernel> KernelRecording::end() {
  running_ = false;
  const auto result = torch::autograd::profiler::disableProfiler();
  const std::chrono::nanoseconds offset =
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()) -
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch());
  std::vector<Kernel> kernels;
  for (const auto& event : result->events()) {
    if ((event.deviceType() == c10::DeviceType::CUDA) != gpu_) continue;  // the rest: the host's calls that launched
    kernels.push_back({.name = event.name(),
                       .stream = event.deviceResourceId(),
                       .begin = steady(event.startNs(), offset),
                       .end = steady(event.endNs(), offset)});
  }
  std::sort(kernels.begin(), kernels.end(), [](const Kernel& a, const Kernel& b) { return a.begin < b.begin; });
  return kernels;
}

}  // namespace trireme::timeline
