// SPDX-License-Identifier: Apache-2.0
#include "comm/staging.hpp"

#include <new>

namespace trireme::comm {

std::shared_ptr<std::byte[]> allocate_staging(const StagingSource& source, std::size_t bytes) {
  if (source.allocate) return source.allocate(bytes);
  constexpr std::align_val_t alignment{64};
  return {static_cast<std::byte*>(::operator new[](bytes, alignment)),
          [](std::byte* p) { ::operator delete[](p, alignment); }};
}

}  // namespace trireme::comm
