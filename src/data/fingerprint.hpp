// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/base/io/input_file.hpp"

namespace trireme::data {

/// The hashes of a file's blocks, as text: of all blocks up to 4 MiB; of a larger file of 256, one in each of as many
/// equal parts, at a place that a hash chooses. So 4 MiB are read at most, and a change all over two neighbouring parts
/// is always seen.
[[nodiscard]] std::string sampled_hash(const io::InputFile& file);

/// The size of a file and a hash of all its bytes, as text.
[[nodiscard]] std::string whole_hash(const io::InputFile& file);

}  // namespace trireme::data
