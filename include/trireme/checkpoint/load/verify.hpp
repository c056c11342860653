// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace trireme::checkpoint {

/// Reads every byte of the checkpoint at `path` against its checksums. What it finds, one line each with the file and,
/// where the byte belongs to one, the dataset; nothing when the checkpoint is sound.
[[nodiscard]] std::vector<std::string> verify(const std::string& path);

/// A table of a checkpoint's tensors and where they come from: for people. Throws CheckpointError.
[[nodiscard]] std::string describe(const std::string& path);

}  // namespace trireme::checkpoint
