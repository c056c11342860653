// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/base/error.hpp"
#include "trireme/model/model.hpp"

namespace trireme::model {

/// The error message of `build(config)`; empty when it succeeds.
inline std::string message_of(const config::Model& config) {
  try {
    (void)build(config);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace trireme::model
