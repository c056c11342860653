// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace trireme::test::gpu {

/// Behaviour of a library's attention on the simulated GPU, for tests of the choice between them.
struct AttentionLibraryOnTrial {
  bool refuses = false;
  std::optional<std::int64_t> wrong_from;  ///< sequences of as many tokens or more are computed wrongly
  std::chrono::milliseconds delay{0};      ///< of a forward
  int calls = 0;                           ///< forwards
};
extern AttentionLibraryOnTrial flash_on_trial, cudnn_on_trial;

}  // namespace trireme::test::gpu
