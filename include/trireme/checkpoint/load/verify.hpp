// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace trireme::checkpoint {

/// Reads every byte of the checkpoint at `path` against its checksums. Returns the mistakes, a line each with the file
/// and, if the byte belongs to one, the dataset; empty when the checkpoint is sound.
[[nodiscard]] std::vector<std::string> verify(const std::string& path);

/// A table of a checkpoint's tensors and their files, for users. Throws CheckpointError.
[[nodiscard]] std::string describe(const std::string& path);

}  // namespace trireme::checkpoint
