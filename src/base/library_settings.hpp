// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace trireme {

/// Sets the environment variables by which this program wants its libraries to behave, where the user has not. At the
/// very start: later, a thread that reads the environment meanwhile, as any library's may, would read freed memory.
void set_for_libraries();

}  // namespace trireme
