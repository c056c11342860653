// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/checkpoint/manifest.hpp"

namespace trireme::checkpoint {

/// Writes `path`/index.h5, flushed to disk: the manifest's JSON as a dataset of bytes, attributes, and virtual datasets
/// of every parameter and moment in full shape. Throws WriteError.
void write_index(const std::string& path, const Manifest& manifest, const std::string& json);

}  // namespace trireme::checkpoint
