// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/mpi/communicator.hpp"

namespace trireme::supervise {

/// Maximum number of ranks that write one: in larger jobs one rank per node does, so that the end of the job does not
/// wait for thousands of files in one directory.
constexpr int most_hang_reports = 1024;

/// Path of a rank's hang report: hang-rank3.json in run.output, with the operations in progress.
[[nodiscard]] std::string hang_report_path(const std::string& output, int rank);

/// The ranks that write a report. most: with more ranks, one rank per node, if the nodes are known.
[[nodiscard]] std::vector<int> hang_reporters(const mpi::Communicator& world, int most = most_hang_reports);

/// Path of the file that a rank touches during long file work while others wait: see Heartbeat.
[[nodiscard]] std::string heartbeat_path(const std::string& output);

/// Removes reports and heartbeat.
void remove_hang_reports(const std::string& output);

/// Those of them that wrote no report, by name, the first few; "" when all did, or when none is visible (no common file
/// system). Lists the directory once. Local.
[[nodiscard]] std::string silent_ranks(const std::string& output, const mpi::Communicator& world,
                                       int most = most_hang_reports);

}  // namespace trireme::supervise
