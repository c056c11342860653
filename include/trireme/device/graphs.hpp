// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>

#include "trireme/base/units.hpp"

namespace trireme::device {

/// GPU work that is recorded once and replayed with one launch per graph (CUDA graphs), on the memory that it
/// was recorded with: its inputs and outputs must keep their addresses. Graphs of one object share the tensors
/// allocated while recording, so they are replayed in the order of recording and on one stream.
class Graphs {
 public:
  Graphs() = default;
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;
  virtual ~Graphs() = default;

  /// Empties the cache of libtorch's allocator: recorded work has separate memory. Before the first `record`, with no
  /// work in progress.
  virtual void make_room() = 0;
  /// Records the launches of `work` on the current stream, without running them, and returns the graph's number. `work`
  /// runs on the calling thread and must not wait for the GPU. Other threads may launch and wait meanwhile.
  [[nodiscard]] virtual int record(const std::function<void()>& work) = 0;
  /// Runs graph number `graph` on the calling thread's current stream.
  virtual void launch(int graph) = 0;
  /// GPU memory of the graphs in addition to live tensors.
  [[nodiscard]] virtual Bytes memory() const = 0;
};

/// Graphs of a GPU, which `use_gpu` returned.
[[nodiscard]] std::unique_ptr<Graphs> make_graphs(c10::Device gpu);

}  // namespace trireme::device
