// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>

#include "trireme/base/units.hpp"

namespace trireme::device {

/// Work of a GPU that is recorded once and then runs again at one launch a graph (CUDA graphs), on the memory that it
/// was recorded with: whatever it reads or writes has to lie where it lay then. Graphs of one object share what they
/// make while they are recorded, so they run in the order in which they were recorded, and on one stream.
class Graphs {
 public:
  Graphs() = default;
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;
  virtual ~Graphs() = default;

  /// Gives back to the GPU what libtorch's allocator caches: recorded work has separate memory. Before
  /// the first `record`, with nothing under way.
  virtual void make_room() = 0;
  /// Records what `work` launches on the current stream, without running it, and returns its number. `work` runs on
  /// the calling thread and may not wait for the GPU. Other threads may launch and wait meanwhile.
  [[nodiscard]] virtual int record(const std::function<void()>& work) = 0;
  /// Runs graph number `graph` on the calling thread's current stream.
  virtual void launch(int graph) = 0;
  /// GPU memory of the graphs in addition to live tensors.
  [[nodiscard]] virtual Bytes memory() const = 0;
};

/// Those of a GPU, which `use_gpu` returned.
[[nodiscard]] std::unique_ptr<Graphs> make_graphs(c10::Device gpu);

}  // namespace trireme::device
