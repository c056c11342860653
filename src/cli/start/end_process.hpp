// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace trireme::cli {

/// The end of main: writes what is buffered and ends the process with `code`, without the destructors of static
/// objects, in which libtorch takes its thousands of operators back one by one (0.1 s of each rank). Returns `code`
/// where a GPU's driver is loaded: its profilers write their records in such destructors.
int end_process(int code);

}  // namespace trireme::cli
