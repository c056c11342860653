// SPDX-License-Identifier: Apache-2.0
#pragma once

// The only place that includes <mpi.h>: without the deprecated C++ bindings, which cost compile time and warnings.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <source_location>
#include <string_view>

namespace trireme::mpi {

/// Throws EnvironmentError with MPI's own text and the caller's place unless `code` is MPI_SUCCESS. what: the attempted
/// action, as an infinitive: "duplicate the world communicator".
void check(int code, std::string_view what, std::source_location where = std::source_location::current());

}  // namespace trireme::mpi
