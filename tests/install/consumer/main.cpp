// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "trireme/base/build_info.hpp"
#include "trireme/comm/session.hpp"
#include "trireme/comm/topology.hpp"
#include "trireme/mesh/mesh.hpp"

/// Uses layers of both halves; all of them are linked, with their libraries.
int main(int argc, char** argv) {
  const trireme::comm::Session session(&argc, &argv);
  const trireme::mesh::Mesh mesh{1, session.world().size(), 1};
  const trireme::comm::Topology topology = trireme::comm::probe_topology(session.world());
  std::cout << "trireme " << trireme::build_info().version << ", mesh " << mesh.text() << ", " << topology.nodes
            << " nodes\n";
}
