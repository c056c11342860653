// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/io/file_system.hpp"

#include <fmt/format.h>
#include <sys/vfs.h>

#include <algorithm>
#include <filesystem>

namespace trireme::io {

std::string_view to_text(FileSystem kind) {
  switch (kind) {
    case FileSystem::local: return "local or unknown file system";
    case FileSystem::memory: return "this node's memory";
    case FileSystem::nfs: return "NFS";
    case FileSystem::lustre: return "Lustre";
    case FileSystem::gpfs: return "GPFS";
    case FileSystem::beegfs: return "BeeGFS";
  }
  return "?";
}

FileSystem file_system(std::int64_t magic) {
  switch (magic) {  // linux/magic.h, and the projects' own constants
    case 0x01021994:
    case 0x858458f6: return FileSystem::memory;
    case 0x6969: return FileSystem::nfs;
    case 0x0BD00BD0: return FileSystem::lustre;
    case 0x47504653: return FileSystem::gpfs;
    case 0x19830326: return FileSystem::beegfs;
    default: return FileSystem::local;
  }
}

FileSystem file_system_of(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (fs::path at = fs::absolute(path, error);; at = at.parent_path()) {
    struct statfs found {};
    if (::statfs(at.c_str(), &found) == 0) return file_system(static_cast<std::int64_t>(found.f_type) & 0xffffffff);
    if (!at.has_relative_path()) return FileSystem::local;
  }
}

std::string striping_hint(FileSystem kind, const std::string& directory, std::int64_t files, Bytes bytes) {
  constexpr std::int64_t gib = std::int64_t{1} << 30;
  constexpr std::int64_t most_stripes = 16;
  if (kind == FileSystem::nfs && files > 1)
    return fmt::format(
        "{} lies on NFS: {} ranks write {} through one server at every save. Set checkpoint.directory to a parallel "
        "file system where there is one.",
        directory, files, to_text(bytes));
  const std::int64_t stripes = std::min(most_stripes, bytes.value / files / gib);
  if (kind != FileSystem::lustre || stripes < 2) return "";
  return fmt::format(
      "{} lies on Lustre, and a save writes {} files of {}. `lfs setstripe -c {} -S 16M {}` before the first one "
      "spreads each over {} servers; new files take it over.",
      directory, files, to_text(Bytes{bytes.value / files}), stripes, directory, stripes);
}

}  // namespace trireme::io
