// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

#include "trireme/base/units.hpp"
#include "trireme/device/memory.hpp"

namespace trireme::device {

/// libtorch's name of an element type.
[[nodiscard]] at::ScalarType to_torch(DType type);

/// A persistent buffer: [elements], zeroed, of exactly that size (0 too), charged to (category, space) until the last
/// tensor that shares it is destroyed; its memory is then returned to the system. Throws EnvironmentError when out of
/// memory. compute: the compute device. On a GPU a buffer of Space::device is in its memory, and one of Space::host in
/// page-locked memory, whose copies run concurrently with computation.
[[nodiscard]] at::Tensor buffer(Category category, std::int64_t elements, DType type, Space space = Space::device,
                                at::Device compute = at::kCPU);

/// A buffer without memory: views of it can be made, but not read. `give_memory` allocates it, uninitialized, from
/// libtorch's allocator (on a GPU for the calling thread's current stream) and charges it to `category`, until
/// `take_memory`, for all views.
[[nodiscard]] at::Tensor without_memory(std::int64_t elements, DType type, at::Device compute);
void give_memory(const at::Tensor& buffer, Category category);
void take_memory(const at::Tensor& buffer);
[[nodiscard]] bool has_memory(const at::Tensor& buffer);

/// Threshold in bytes: host buffers of this size and larger are mapped separately and page-aligned; smaller ones come
/// from malloc, aligned to 64 bytes.
inline constexpr std::size_t own_pages = std::size_t{1} << 20;
/// Whether `buffer` begins with a page of the host's memory, and no page from there on holds anything else: of
/// `buffer`'s from `own_pages` on.
[[nodiscard]] bool has_own_pages(const at::Tensor& buffer);

/// `tensor` itself if it is in host memory, otherwise a copy of it there.
[[nodiscard]] at::Tensor on_host(const at::Tensor& tensor);

/// `shape` laid over `buffer` from element `offset` on: shares its memory, copies nothing. buffer: [elements],
/// contiguous.
[[nodiscard]] at::Tensor view(const at::Tensor& buffer, std::int64_t offset, at::IntArrayRef shape);

/// Charges the memory of `tensor` to another account: tensors that a stage saved become `activations`. Applies to the
/// whole allocation, for all tensors that share it. Ignores memory of other allocators, such as that of a vector, and
/// undefined tensors.
void charge_to(const at::Tensor& tensor, Account account);

}  // namespace trireme::device
