// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace trireme::comm {

class Communicator;

/// The text of rank 0, on every rank: one rank reads a file, not thousands. Collective over `communicator`.
[[nodiscard]] std::string broadcast_text(const Communicator& communicator, std::string text);

}  // namespace trireme::comm
