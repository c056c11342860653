// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

namespace trireme {

/// A library and the version that this program was built with.
struct LibraryVersion {
  std::string_view name;
  std::string_view version;
};

/// Sources, compiler and settings of this build: for `--version`, `doctor`, the start banner and checkpoints.
struct BuildInfo {
  std::string_view version;     ///< of Trireme, such as "0.1.0"
  std::string_view git_hash;    ///< of the commit, with "-dirty" for uncommitted changes; "unknown" outside git
  std::string_view date;        ///< of the commit, else of the build, such as "2026-11-28"
  std::string_view compiler;    ///< name and version
  std::string_view build_type;  ///< Release, Debug, ...
  std::string_view flags;       ///< the compiler's options
  std::string_view arch;        ///< the -march that the CPU has to satisfy; empty: the compiler's default
  std::span<const LibraryVersion> libraries;
};

/// Describes this build. The git hash is as fresh as the last build.
[[nodiscard]] const BuildInfo& build_info();

}  // namespace trireme
