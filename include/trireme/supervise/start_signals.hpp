// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <thread>

namespace trireme::supervise {

/// During its lifetime SIGTERM ends the process at once, although `block_stop_signals` blocks it: there is no training
/// state to save yet, and the start may wait forever (for a file system, another rank). Destroyed before the training
/// begins, when StopSignals takes over.
class StartSignals {
 public:
  StartSignals();

 private:
  std::jthread thread_;
};

}  // namespace trireme::supervise
