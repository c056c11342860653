// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/mpi/communicator.hpp"

namespace trireme::supervise {

/// Ranks that write one at most: of larger jobs one rank of each node does, so that thousands of files in one
/// directory are not what the end of the job waits for.
constexpr int most_hang_reports = 1024;

/// What ranks write when a job hangs: hang-rank3.json in run.output, with the operations that the rank is in.
[[nodiscard]] std::string hang_report_path(const std::string& output, int rank);

/// The ranks that write a report. most: above so many ranks, one rank of each node, where the nodes are known.
[[nodiscard]] std::vector<int> hang_reporters(const mpi::Communicator& world, int most = most_hang_reports);

/// What a rank touches while it works on files for long and others wait: see Heartbeat.
[[nodiscard]] std::string heartbeat_path(const std::string& output);

/// Removes reports and heartbeat.
void remove_hang_reports(const std::string& output);

/// Those of them that wrote no report, by name, the first few; "" when all did, or when none can be seen (no common
/// file system). Lists the directory once. Local.
[[nodiscard]] std::string silent_ranks(const std::string& output, const mpi::Communicator& world,
                                       int most = most_hang_reports);

}  // namespace trireme::supervise
