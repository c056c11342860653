// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/mpi/communicator.hpp"

namespace trireme::supervise {

/// What ranks write when a job hangs: hang-rank3.json in run.output, with the operations that the rank is in.
[[nodiscard]] std::string hang_report_path(const std::string& output, int rank);

/// What a rank touches while it works on files for long and others wait: see Heartbeat.
[[nodiscard]] std::string heartbeat_path(const std::string& output);

/// Removes reports and heartbeat.
void remove_hang_reports(const std::string& output);

/// The ranks that wrote no report, by name, the first few of them; "" when all did, or when none can be seen (no
/// common file system). Local.
[[nodiscard]] std::string silent_ranks(const std::string& output, const mpi::Communicator& world);

}  // namespace trireme::supervise
