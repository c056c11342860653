// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <thread>

namespace trireme::supervise {

/// While one lives, SIGTERM ends the process at once, although `block_stop_signals` holds it back: nothing is trained
/// yet that a save could keep, and what the start waits for (a file system, another rank) may never come. Destroyed
/// before the training begins, when StopSignals takes over.
class StartSignals {
 public:
  StartSignals();

 private:
  std::jthread thread_;
};

}  // namespace trireme::supervise
