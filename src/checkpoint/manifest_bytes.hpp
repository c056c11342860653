// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/checkpoint/manifest.hpp"

namespace trireme::checkpoint {

/// A manifest for the other ranks of a job, which need not parse JSON that one rank has parsed and checked.
[[nodiscard]] std::string encode(Manifest manifest);
/// What `encode` was given. Throws BugError for anything else.
[[nodiscard]] Manifest decode(std::string_view bytes);

/// Some of its files, alone.
[[nodiscard]] std::string encode(std::vector<SavedFile> files);
[[nodiscard]] std::vector<SavedFile> decode_files(std::string_view bytes);

}  // namespace trireme::checkpoint
