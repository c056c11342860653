// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/codec.hpp"

namespace trireme::config {

inline constexpr const char* rope_scaling_form =
    "{ rope_type = \"llama3\", factor = 8.0, low_freq_factor = 1.0, high_freq_factor = 4.0, "
    "original_max_position_embeddings = 8192 }";

/// model.rope_scaling: a table whose other keys depend on its rope_type.
[[nodiscard]] Expected read_rope_scaling(const Value& value, Model& model);
[[nodiscard]] Printed print_rope_scaling(const Model& model);

}  // namespace trireme::config
