// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/run_config.hpp"

namespace trireme::huggingface {

/// The run file's model with the sizes that it leaves to the model: kv_heads, head_dim. Throws ConfigError.
[[nodiscard]] config::RunConfig with_derived_sizes(config::RunConfig config);

/// True unless `model.from` is a checkpoint, whose sizes only the checkpoint layer reads.
[[nodiscard]] bool completes(const config::RunConfig& config);

/// The run file's model with every size known: from the config.json of `model.from` if it is given. Throws
/// ConfigError or CheckpointError.
[[nodiscard]] config::RunConfig complete_model(config::RunConfig config);

}  // namespace trireme::huggingface
