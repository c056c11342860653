// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "checkpoint/hdf5_image.hpp"
#include "trireme/checkpoint/manifest.hpp"

namespace trireme::checkpoint {

/// index.h5: the manifest's JSON as a dataset of bytes, attributes, and virtual datasets of every parameter and state
/// in full shape. Throws WriteError.
[[nodiscard]] h5::Image index_image(const Manifest& manifest, const std::string& json);

}  // namespace trireme::checkpoint
