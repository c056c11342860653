// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/mpi/abort_arbitration.hpp"

namespace trireme::mpi {

/// What `abort_job` asks before it speaks, from any thread; null: nothing. It must outlive that.
void set_abort_arbitration(const AbortArbitration* word);

}  // namespace trireme::mpi
