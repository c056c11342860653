// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/mpi/abort_arbitration.hpp"

namespace trireme::mpi {

/// What `abort_job` asks before it speaks, from any thread; null: nothing. It must outlive that.
void set_abort_arbitration(const AbortArbitration* word);

/// MPI is about to end: `abort_job` then calls no MPI function, which may hang.
void set_mpi_ending();

}  // namespace trireme::mpi
