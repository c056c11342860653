// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/base/units.hpp"

namespace trireme::io {

/// What a directory lies on, as far as it matters for who may see it and how many write well at once.
enum class FileSystem { local, memory, nfs, lustre, gpfs, beegfs };
[[nodiscard]] std::string_view to_text(FileSystem kind);

/// The kind that `statfs` names by this magic number; local when it is none of the others.
[[nodiscard]] FileSystem file_system(std::int64_t magic);

/// What `path` lies on, or its nearest parent that exists.
[[nodiscard]] FileSystem file_system_of(const std::string& path);

/// What to do before the first save, so that `files` files of together `bytes` are written by many servers at once; ""
/// where there is nothing to do.
[[nodiscard]] std::string striping_hint(FileSystem kind, const std::string& directory, std::int64_t files, Bytes bytes);

}  // namespace trireme::io
