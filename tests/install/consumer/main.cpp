// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "trireme/base/build_info.hpp"
#include "trireme/mesh/mesh.hpp"
#include "trireme/mpi/session.hpp"
#include "trireme/mpi/topology.hpp"

/// Uses layers of both halves; all of them are linked, with their libraries.
int main(int argc, char** argv) {
  const trireme::mpi::Session session(&argc, &argv);
  const trireme::mesh::Mesh mesh{.shard = session.world().size()};
  const trireme::mpi::Topology topology = trireme::mpi::probe_topology(session.world());
  std::cout << "trireme " << trireme::build_info().version << ", mesh " << mesh.text() << ", " << topology.nodes
            << " nodes\n";
}
