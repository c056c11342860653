// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "comm/mpi_transport.hpp"
#include "comm/shared_memory_transport.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/log.hpp"
#include "trireme/comm/collectives.hpp"
#include "trireme/comm/groups.hpp"
#include "trireme/comm/transport.hpp"
#include "trireme/mpi/communicator.hpp"

namespace trireme::comm {
namespace {

std::unique_ptr<Transport> shared_memory(const mpi::Communicator& communicator, const StagingSource& staging,
                                         std::optional<Bytes> staging_bytes) {
  if (!within_one_node(communicator))
    throw EnvironmentError(
        fmt::format("Shared memory was requested, but the {} ranks of the group are on several nodes. Let Trireme "
                    "choose the transport, or use MPI.",
                    communicator.size()));
  return shared_memory_transport(communicator, staging, staging_bytes.value_or(shared_memory_staging));
}

std::unique_ptr<Transport> chosen(const mpi::Communicator& communicator, const StagingSource& staging,
                                  std::optional<Bytes> staging_bytes) {
  if (communicator.size() > 1 && within_one_node(communicator)) {
    try {
      return shared_memory_transport(communicator, staging, staging_bytes.value_or(shared_memory_staging));
    } catch (const EnvironmentError& error) {  // on all ranks alike
      if (communicator.job_rank(communicator.rank()) == 0)
        log::warning(fmt::format("{} MPI carries this group instead, slower.", error.what()));
    }
  }
  return mpi_transport(communicator, staging, staging_bytes.value_or(mpi_staging));
}

}  // namespace

std::unique_ptr<Transport> make_transport(const mpi::Communicator& communicator, const StagingSource& staging,
                                          TransportChoice choice, std::optional<Bytes> staging_bytes) {
  switch (choice) {
    case TransportChoice::automatic: break;
    case TransportChoice::mpi: return mpi_transport(communicator, staging, staging_bytes.value_or(mpi_staging));
    case TransportChoice::shared_memory: return shared_memory(communicator, staging, staging_bytes);
  }
  return chosen(communicator, staging, staging_bytes);
}

std::unique_ptr<Collectives> make_collectives(const mpi::Communicator& communicator, mesh::Group group,
                                              schedule::Lane lane, const Services& services, TransportChoice choice,
                                              std::optional<Bytes> staging_bytes) {
  return std::make_unique<Collectives>(make_transport(communicator, services.staging, choice, staging_bytes),
                                       std::string(traffic_name(group, lane)),
                                       fmt::format("{}/{}", mesh::to_text(group), schedule::to_text(lane)), services);
}

}  // namespace trireme::comm
