// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "trireme/base/ids.hpp"
#include "trireme/base/units.hpp"

namespace trireme::store {

/// Tensors that stages keep between a forward and its backward, on the device or in host memory. Lanes call it at the
/// same time, for different keys.
class ActivationStore {
 public:
  /// Owner of activations: one stage of one block in one microbatch.
  using Key = std::tuple<Block, Stage, Microbatch>;

  /// device: destination of reloads. Copies from and to a GPU are launched on the calling thread's current stream,
  /// through page-locked memory of exactly their sizes, which is cached for the next tensor of that size.
  explicit ActivationStore(at::Device device = at::kCPU) : device_(device) {}

  /// Keeps `tensors` for the backward of `key`. Throws BugError when something is kept there already.
  void keep(const Key& key, std::vector<at::Tensor> tensors);
  /// Returns and removes them. Throws BugError when nothing is kept there, or when it is in host memory.
  [[nodiscard]] std::vector<at::Tensor> take(const Key& key);
  /// The same; none when nothing is kept there.
  [[nodiscard]] std::vector<at::Tensor> take_any(const Key& key);

  /// Copies the tensors of `key` that have at least `min_bytes` to host memory; they stay until `drop`. The bytes
  /// copied.
  Bytes offload(const Key& key, Bytes min_bytes);
  /// Frees the tensors that `offload` has copied.
  void drop(const Key& key);
  /// Allocates them on the device again, on the calling thread's current stream: on a GPU the stream that reads and
  /// frees them, so that their memory is reused in stream order.
  void allocate(const Key& key);
  /// Copies them back to the device and frees the host's. The bytes copied. Throws BugError without `allocate`.
  Bytes reload(const Key& key);

  [[nodiscard]] bool empty() const { return kept_.empty(); }

 private:
  struct Kept {
    std::vector<at::Tensor> tensors;
    std::vector<at::Tensor> on_host;  ///< by tensor; undefined: it stays on the device
    std::vector<at::Tensor> landing;  ///< of a GPU's: the page-locked memory that `on_host` is laid over
  };
  /// Page-locked memory that no tensor has, and the copy that still reads it.
  struct Landing {
    at::Tensor memory;
    c10::Event read;
  };
  /// Page-locked memory of `bytes`, writable by the calling thread's stream.
  [[nodiscard]] at::Tensor take_landing(std::size_t bytes);
  /// Returns it after the calling thread's stream has read it.
  void give_landing(std::size_t bytes, at::Tensor memory);
  [[nodiscard]] Kept& at(const Key& key);

  at::Device device_;
  mutable std::mutex mutex_;  ///< of the maps; the tensors of a key are used by one lane at a time
  std::map<Key, Kept> kept_;
  std::map<std::size_t, std::vector<Landing>> landings_;  ///< by bytes
};

}  // namespace trireme::store
