// SPDX-License-Identifier: Apache-2.0
#include "trireme/device/buffer.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/accumulate.h>

#include <utility>

#include "device/charged_block.hpp"
#include "device/gpu_memory.hpp"
#include "device/pages.hpp"
#include "trireme/base/error.hpp"

namespace trireme::device {
namespace {

/// [elements] in `bytes` of `memory`, which is on `device`.
at::Tensor flat(c10::DataPtr memory, std::size_t bytes, std::int64_t elements, DType type, at::Device device) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, std::move(memory), /*allocator=*/nullptr,
                       /*resizable=*/false);
  const c10::DispatchKeySet keys(device.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU);
  auto tensor =
      at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys, c10::scalarTypeToTypeMeta(to_torch(type)));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous({elements});
  return tensor;
}

}  // namespace

at::ScalarType to_torch(DType type) { return type == DType::fp32 ? at::kFloat : at::kBFloat16; }

at::Tensor buffer(Category category, std::int64_t elements, DType type, Space space, at::Device compute) {
  invariant(elements >= 0, "a buffer has no negative size");
  if (compute.is_cuda() && space == Space::device) {
    const ChargeTo charge(category);
    return at::zeros({elements}, at::TensorOptions(to_torch(type)).device(compute));
  }
  const auto bytes = static_cast<std::size_t>(elements * size_of(type));
  c10::DataPtr memory = allocate_charged(bytes, {category, space}, Kind::exact);
  // Smaller ones may share a page, which is locked once; they are copied through the driver's own memory.
  if (compute.is_cuda() && bytes >= own_pages) memory = page_locked(std::move(memory), bytes);
  return flat(std::move(memory), bytes, elements, type, at::kCPU);
}

at::Tensor without_memory(std::int64_t elements, DType type, at::Device compute) {
  const auto bytes = static_cast<std::size_t>(elements * size_of(type));
  return flat(c10::DataPtr(nullptr, compute), bytes, elements, type, compute);
}

void give_memory(const at::Tensor& buffer, Category category) {
  const c10::Storage& storage = buffer.storage();
  invariant(storage.data() == nullptr, "memory is given to a buffer that has none");
  if (!buffer.is_cuda()) {
    storage.set_data_ptr_noswap(allocate_charged(storage.nbytes(), {category, Space::device}, Kind::cached));
    return;
  }
  const ChargeTo charge(category);
  storage.set_data_ptr_noswap(c10::GetAllocator(buffer.device().type())->allocate(storage.nbytes()));
}

bool has_memory(const at::Tensor& buffer) { return buffer.numel() == 0 || buffer.storage().data() != nullptr; }

bool has_own_pages(const at::Tensor& buffer) {
  const c10::DataPtr& memory = buffer.storage().data_ptr();
  return memory.get() != nullptr && memory.get_deleter() == &free_charged && buffer.storage().nbytes() >= own_pages &&
         buffer.storage_offset() == 0;
}

void take_memory(const at::Tensor& buffer) {
  invariant(has_memory(buffer), "memory is taken from a buffer that has some");
  buffer.storage().set_data_ptr_noswap(c10::DataPtr(nullptr, buffer.device()));
}

at::Tensor view(const at::Tensor& buffer, std::int64_t offset, at::IntArrayRef shape) {
  invariant(buffer.is_contiguous() && buffer.dim() == 1, "a view is laid over a flat buffer");
  const std::int64_t elements = c10::multiply_integers(shape);
  invariant(offset >= 0 && elements >= 0 && offset + elements <= buffer.numel(), "a view lies inside its buffer");
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(buffer.storage()),
                                                         buffer.key_set(), buffer.dtype());
  tensor.unsafeGetTensorImpl()->set_storage_offset(buffer.storage_offset() + offset);
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(shape);
  return tensor;
}

at::Tensor on_host(const at::Tensor& tensor) { return tensor.is_cuda() ? tensor.to(at::kCPU) : tensor; }

void charge_to(const at::Tensor& tensor, Account account) {
  if (!tensor.defined()) return;
  if (tensor.is_cuda()) return recharge_on_gpu(tensor.storage().data_ptr().get(), account.category);
  const c10::DataPtr& memory = tensor.storage().data_ptr();
  if (memory.get() != nullptr && memory.get_deleter() == &free_charged) recharge(memory.get(), account);
}

}  // namespace trireme::device
