// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "trireme/comm/collectives.hpp"

namespace trireme::comm {

/// Memory of a transport: from the source, or plain and aligned to 64 bytes when it brings no allocator.
[[nodiscard]] std::shared_ptr<std::byte[]> allocate_staging(const StagingSource& source, std::size_t bytes);

}  // namespace trireme::comm
