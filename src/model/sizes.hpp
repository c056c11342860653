// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/model/model.hpp"

namespace trireme::model {

/// The sizes that the run file gives, completed. Throws ConfigError listing what is missing, does not fit together, or
/// has no meaning for an architecture with this decoder.
[[nodiscard]] Sizes completed_sizes(const config::Model& config, const Decoder& decoder);

}  // namespace trireme::model
