// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/executor/links.hpp"
#include "trireme/model/model.hpp"
#include "trireme/mpi/communicator.hpp"
#include "trireme/store/parameter_store.hpp"

namespace trireme::train {

struct JobOptions;

/// Kind of memory of buffers for gathers and reductions, where it can be a window; absent: any will
/// do.
[[nodiscard]] store::Allocate memory_of_windows(const JobOptions& options);

/// Registers the buffers of gathers and reductions of parameter blocks with their transports: NCCL's windows
/// (comm.nccl_windows), and memory shared by ranks of one node, in which shards are parts of the gathered buffer, so
/// that gathers copy nothing. Before the store is filled. Collective over the groups of all blocks. world: its first
/// rank warns if its node refuses.
void add_windows(const model::Model& model, store::ParameterStore& store, const executor::Links& links,
                 const JobOptions& options, const mpi::Communicator& world);

}  // namespace trireme::train
