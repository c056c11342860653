// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/part.hpp"
#include "trireme/checkpoint/manifest.hpp"

namespace trireme::checkpoint {

/// A manifest for the other ranks of a job, which need not parse JSON that one rank has parsed and checked.
[[nodiscard]] std::string encode(Manifest manifest);
/// Inverse of `encode`. Throws BugError for anything else.
[[nodiscard]] Manifest decode(std::string_view bytes);

/// Messages between a rank and the holder of the manifest.
[[nodiscard]] std::string encode(Request request);
[[nodiscard]] Request decode_request(std::string_view bytes);
[[nodiscard]] std::string encode(Part part);
[[nodiscard]] Part decode_part(std::string_view bytes);

}  // namespace trireme::checkpoint
