// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/config/run_config.hpp"
#include "trireme/data/batch_reader.hpp"
#include "trireme/mpi/communicator.hpp"

namespace trireme::train {

/// Opens the token files of a list on every rank; the first one looks for them and their sidecars, and plans their
/// packing, for all. Collective
/// over `world`. Throws an error of any rank on all ranks, as open_split.
[[nodiscard]] data::Datasets open_tokens(const mpi::Communicator& world, const config::Data& data, data::Split split,
                                         std::int64_t vocab_size);

}  // namespace trireme::train
