// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace trireme::checkpoint {

/// The text of COMMIT for an index of `bytes` bytes with this XXH3, of a checkpoint of format `version`: nothing else
/// is accepted.
[[nodiscard]] std::string commit_text(int version, std::int64_t bytes, std::uint64_t hash);

/// XXH3 of a whole file, and its size. Throws CheckpointError.
struct FileHash {
  std::int64_t bytes = 0;
  std::uint64_t hash = 0;
};
[[nodiscard]] FileHash hash_file(const std::string& path);

}  // namespace trireme::checkpoint
