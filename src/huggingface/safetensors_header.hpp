// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "trireme/huggingface/safetensors.hpp"

namespace trireme::huggingface {

/// Reads and checks the header of an open file. Throws CheckpointError.
[[nodiscard]] TensorTable read_header(const io::File& file);

/// Whether the header of an open file names `make_header` as its writer: its metadata are not passed on by other
/// programs. Throws CheckpointError.
[[nodiscard]] bool is_written_by_trireme(const io::File& file);

/// The first bytes of a file that holds `tensors`: length and JSON, padded with blanks to a multiple of 8 bytes.
[[nodiscard]] std::string make_header(std::span<const TensorSpec> tensors);

}  // namespace trireme::huggingface
