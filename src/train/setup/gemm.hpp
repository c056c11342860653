// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/kernels/gemm.hpp"
#include "trireme/mpi/communicator.hpp"

namespace trireme::train {

/// Makes every rank multiply with the libraries that are fastest on rank 0's CPU:
/// measured once per CPU type and build, stored in
/// `${TRIREME_CACHE:-~/.cache/trireme}/gemm/`, decided by rank 0 and broadcast,
/// because results of libraries differ in their bits. If the file cannot be read or
/// written, it measures again. Collective over `world`; libtorch's threads are set.
kernels::GemmChoice agree_on_gemm(const mpi::Communicator& world);

/// This CPU's model; "unknown" where the kernel does not name it.
[[nodiscard]] std::string cpu_model();

/// This CPU's model, and a hash of other properties of its arithmetic: family, stepping, instruction sets.
[[nodiscard]] std::string cpu_name();

/// Path of the choice for this CPU type and build; "" if there is no home directory.
[[nodiscard]] std::string gemm_choice_path();

}  // namespace trireme::train
