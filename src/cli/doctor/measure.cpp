// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>

#include "cli/doctor/probe.hpp"
#include "trireme/base/build_info.hpp"
#include "trireme/kernels/gemm.hpp"

namespace trireme::cli {
namespace {

/// The shortest of several calls, in seconds.
double fastest(const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  constexpr double enough = 0.3;
  call();
  double best = 1e9;
  double total = 0;
  for (int calls = 0; calls < 3 || total < enough; ++calls) {
    const auto begin = Clock::now();
    call();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    best = std::min(best, seconds);
    total += seconds;
  }
  return best;
}

double copy_speed() {
  constexpr std::int64_t bytes = std::int64_t{64} << 20;  // beyond every cache
  const at::Tensor from = at::ones({bytes / 4}, at::kFloat);
  const at::Tensor to = at::ones({bytes / 4}, at::kFloat);
  const auto* source = static_cast<const char*>(from.const_data_ptr());
  auto* target = static_cast<char*>(to.mutable_data_ptr());
  const double seconds = fastest([&] {
    at::parallel_for(0, bytes, 1 << 20, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(target + begin, source + begin, static_cast<std::size_t>(end - begin));
    });
  });
  return 2.0 * static_cast<double>(bytes) / seconds;
}

double product_speed(at::ScalarType type) {
  constexpr std::int64_t n = 1024;
  const at::Tensor x = at::ones({n, n}, type);
  const at::Tensor w = at::ones({n, n}, type);
  return 2.0 * static_cast<double>(n) * n * n / fastest([&] { (void)kernels::linear(x, w); });
}

}  // namespace

Versions libtorch_versions() {
  Versions versions;
  for (const LibraryVersion& library : build_info().libraries)
    if (library.name == "libtorch") versions.compiled = library.version;
  const std::string config = at::show_config();  // "..., TORCH_VERSION=2.11.0, USE_CUDA=..."
  const std::string key = "TORCH_VERSION=";
  const auto begin = config.find(key);
  versions.loaded = begin == std::string::npos
                        ? versions.compiled
                        : config.substr(begin + key.size(), config.find_first_of(", \n", begin) - begin - key.size());
  return versions;
}

Speeds measure_speeds() {
  kernels::set_gemm_choice(kernels::measure_gemm());
  return {.copy_bytes_per_second = copy_speed(),
          .fp32_flops = product_speed(at::kFloat),
          .bf16_flops = product_speed(at::kBFloat16)};
}

}  // namespace trireme::cli
