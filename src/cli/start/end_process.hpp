// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace trireme::cli {

/// Ends the process with `code` after flushing buffers, without the destructors of static objects, in which libtorch
/// unregisters its thousands of operators (0.1 s of each rank). Returns `code` if a GPU's driver is loaded: its
/// profilers write their records in such destructors.
int end_process(int code);

}  // namespace trireme::cli
