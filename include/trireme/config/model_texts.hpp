// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trireme/config/codec.hpp"

namespace trireme::config {

/// The values of [model] that describe the model itself, by the table of options: "model.layers" and "12". Those
/// without a value are left out, and so are init, init_std and from, which concern its first values.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> model_texts(const Model& model);

/// Reads one of them. Returns the expected form, such as "an integer, at least 1", if `text` is invalid; "no key of
/// [model]" for a name that is not in `model_texts`.
[[nodiscard]] Expected read_model_text(const std::string& name, const std::string& text, Model& model);

}  // namespace trireme::config
