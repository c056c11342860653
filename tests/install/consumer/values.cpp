// SPDX-License-Identifier: Apache-2.0
#include "trireme/mesh/mesh.hpp"

int main() { return trireme::mesh::Mesh{.replicate = 2, .shard = 3}.dp_size() == 6 ? 0 : 1; }
