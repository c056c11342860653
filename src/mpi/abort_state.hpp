// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/mpi/abort_arbitration.hpp"

namespace trireme::mpi {

/// Sets the arbitration that `abort_job` uses before it prints, from any thread; null: none. Must outlive its use.
void set_abort_arbitration(const AbortArbitration* word);

/// MPI is about to end: `abort_job` then calls no MPI function, which may hang.
void set_mpi_ending();

}  // namespace trireme::mpi
