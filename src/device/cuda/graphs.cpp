// SPDX-License-Identifier: Apache-2.0
#include "trireme/device/graphs.hpp"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include <deque>

#include "trireme/base/error.hpp"

namespace trireme::device {
namespace {

namespace CUDACachingAllocator = c10::cuda::CUDACachingAllocator;

/// A head's forward in training launches nothing, and libtorch warns of a graph without work.
class NoWarning final : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

class CudaGraphs final : public Graphs {
 public:
  explicit CudaGraphs(c10::DeviceIndex gpu)
      : recording_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, gpu)), pool_(at::cuda::graph_pool_handle()) {}

  void make_room() override {
    invariant(graphs_.empty(), "room for graphs is made before the first of them");
    CUDACachingAllocator::emptyCache();
  }

  int record(const std::function<void()>& work) override {
    at::cuda::CUDAGraph& graph = graphs_.emplace_back();
    // The compute lane's stream, the device's default one, cannot be recorded.
    const c10::cuda::CUDAStreamGuard aside(recording_);
    // Only this thread must not end the recording: lanes and the watch of collectives may call CUDA.
    graph.capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      end_after_a_failure(graph);
      throw;
    }
    NoWarning silent;
    const c10::WarningUtils::WarningHandlerGuard unheard(&silent);
    graph.capture_end();
    return static_cast<int>(graphs_.size()) - 1;
  }

  void launch(int graph) override { graphs_.at(static_cast<std::size_t>(graph)).replay(); }

  Bytes memory() const override {
    Bytes idle;
    for (const auto& segment : CUDACachingAllocator::snapshot(pool_).segments)
      if (segment.owner_private_pool_id == pool_)
        idle += Bytes{static_cast<std::int64_t>(segment.total_size - segment.allocated_size)};
    return idle;
  }

 private:
  /// The failure is reported by its own exception, not by that of the recording.
  static void end_after_a_failure(at::cuda::CUDAGraph& graph) noexcept {
    try {
      graph.capture_end();
    } catch (...) {
      (void)cudaGetLastError();
    }
  }

  c10::cuda::CUDAStream recording_;
  at::MempoolId_t pool_;
  std::deque<at::cuda::CUDAGraph> graphs_;  ///< they stay where they are
};

}  // namespace

std::unique_ptr<Graphs> make_graphs(c10::Device gpu) { return std::make_unique<CudaGraphs>(gpu.index()); }

}  // namespace trireme::device
