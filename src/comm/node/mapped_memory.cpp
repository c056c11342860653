// SPDX-License-Identifier: Apache-2.0
#include "comm/node/mapped_memory.hpp"

#include <ATen/ops/from_blob.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cstddef>
#include <cstdint>

#include "comm/node/shared_pages.hpp"
#include "trireme/device/buffer.hpp"

namespace trireme::comm {

at::Tensor mapped_memory(std::int64_t elements, DType type) {
  rlimit addresses{};
  if (::getrlimit(RLIMIT_AS, &addresses) != 0 || addresses.rlim_cur != RLIM_INFINITY) return {};
  const std::size_t bytes = whole_pages(static_cast<std::size_t>(elements * size_of(type)));
  void* const wide =
      ::mmap(nullptr, bytes + huge_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (wide == MAP_FAILED) return {};
  // It begins `window_lead` after a huge page, as windows' files do: huge pages of both begin together.
  auto* const begin = static_cast<std::byte*>(wide);
  const std::size_t past = (reinterpret_cast<std::uintptr_t>(begin) - window_lead) % huge_page,
                    before = past == 0 ? 0 : huge_page - past;
  if (before > 0) ::munmap(begin, before);
  ::munmap(begin + before + bytes, huge_page - before);
  return at::from_blob(
      begin + before, {elements}, [bytes](void* data) { ::munmap(data, bytes); },
      at::TensorOptions(device::to_torch(type)));
}

}  // namespace trireme::comm
