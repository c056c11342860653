// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/model/model.hpp"

namespace trireme::model {

/// Throws ConfigError naming every glob of `no_decay` (optimizer.no_decay) that fits no parameter of a whole model;
/// those of `defaults` are for any family.
void check_no_decay(const Model& model, const std::vector<std::string>& no_decay,
                    const std::vector<std::string>& defaults);

/// Throws ConfigError naming every glob of `groups` (optimizer.groups) that fits no parameter of a whole model, or only
/// parameters of earlier groups.
void check_groups(const Model& model, const std::vector<config::ParameterGroup>& groups);

}  // namespace trireme::model
