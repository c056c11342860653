// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/model/model.hpp"

namespace trireme::model {

/// The sizes of the run file, completed. Throws ConfigError with all sizes that are missing, inconsistent, or
/// meaningless for an architecture with this decoder.
[[nodiscard]] Sizes completed_sizes(const config::Model& config, const Decoder& decoder);

}  // namespace trireme::model
