// SPDX-License-Identifier: Apache-2.0
//
// The simulated GPU in place of src/device/cuda.
#include <cstdlib>
#include <deque>
#include <string>

#include "device/gpu_charges.hpp"
#include "device/gpu_memory.hpp"
#include "device/ledger.hpp"
#include "support/simulated_gpu/engine.hpp"
#include "trireme/base/error.hpp"
#include "trireme/device/gpus.hpp"
#include "trireme/device/graphs.hpp"

namespace trireme::device {
namespace {

/// Graphs with CUDA's semantics: recorded work uses fixed addresses, and host code does not run again.
class SimulatedGraphs final : public Graphs {
 public:
  void make_room() override { invariant(graphs_.empty(), "room for graphs is made before the first of them"); }
  int record(const std::function<void()>& work) override {
    test::gpu::Recording& recording = graphs_.emplace_back();
    recording.pool = pool_;
    test::gpu::recording() = &recording;
    try {
      work();
    } catch (...) {
      test::gpu::recording() = nullptr;
      throw;
    }
    test::gpu::recording() = nullptr;
    return static_cast<int>(graphs_.size()) - 1;
  }
  void launch(int graph) override {
    invariant(graph == next_ || (graph == 0 && next_ == static_cast<int>(graphs_.size())),
              "graphs run in the order in which they were recorded");
    next_ = graph + 1;
    test::gpu::submit([&graph = graphs_.at(static_cast<std::size_t>(graph))] {
      for (const auto& work : graph.work) work();
    });
  }
  Bytes memory() const override { return {static_cast<std::int64_t>(test::gpu::idle_bytes(pool_))}; }

 private:
  int pool_ = test::gpu::new_pool();
  int next_ = 0;
  std::deque<test::gpu::Recording> graphs_;
};

}  // namespace

bool built_for_gpus() { return true; }

GpuProbe probe_gpus() {
  const char* const count = std::getenv("TRIREME_SIMULATED_GPUS");
  GpuProbe probe;
  for (int i = 0; i < (count == nullptr ? 1 : std::atoi(count)); ++i)
    probe.gpus.push_back({.index = i,
                          .name = "a simulated GPU",
                          .memory = {std::int64_t{8} << 30},
                          .major = 9,
                          .bus = std::to_string(i),
                          .nvlink = "switch"});
  return probe;
}

/// A process has one GPU with any number: memory is private to the process.
c10::Device use_gpu(int index) {
  test::gpu::taken_gpu() = index;
  set_host_memory_apart();
  return {c10::DeviceType::CUDA, 0};
}

void cap_gpu_memory(c10::Device, Bytes most, Bytes) { test::gpu::cap(static_cast<std::size_t>(most.value)); }

c10::DataPtr page_locked(c10::DataPtr memory, std::size_t) { return memory; }

void recharge_on_gpu(const void* data, Category category) noexcept { gpu_charges().recharge(data, category); }

std::unique_ptr<Graphs> make_graphs(c10::Device) { return std::make_unique<SimulatedGraphs>(); }

}  // namespace trireme::device
