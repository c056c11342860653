// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trireme/base/io/input_file.hpp"

namespace trireme::data {

/// The hashes of a file's blocks of 16 KiB, as text: of all blocks up to `most_blocks`; of a larger file one block in
/// each of `most_blocks` equal parts, at an offset chosen by a hash. So 4 MiB are read at most by default, and a change
/// of two whole neighbouring parts is always detected. after_block: called after each block.
[[nodiscard]] std::string sampled_hash(const io::InputFile& file, std::int64_t most_blocks = 256,
                                       const std::function<void()>& after_block = {});

/// The size of a file and a hash of all its bytes, as text.
[[nodiscard]] std::string whole_hash(const io::InputFile& file);

}  // namespace trireme::data
