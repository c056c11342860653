// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/base/units.hpp"

namespace trireme::io {

/// File systems that differ in visibility between nodes and in speed of concurrent writes.
enum class FileSystem { local, memory, nfs, lustre, gpfs, beegfs };
[[nodiscard]] std::string_view to_text(FileSystem kind);

/// The kind that `statfs` names by this magic number; local when it is none of the others.
[[nodiscard]] FileSystem file_system(std::int64_t magic);

/// File system of `path`, or of its nearest existing parent.
[[nodiscard]] FileSystem file_system_of(const std::string& path);

/// Advice before the first save, so that `files` files of together `bytes` are written by many servers at once; ""
/// if there is nothing to do.
[[nodiscard]] std::string striping_hint(FileSystem kind, const std::string& directory, std::int64_t files, Bytes bytes);

}  // namespace trireme::io
