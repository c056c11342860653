// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// Nodes of an allocation under `trireme supervise`: values, without processes.
namespace trireme::cli {

/// Result of `trireme doctor --node` on one node.
struct NodeReport {
  std::string node;
  double unix_seconds = 0;            ///< clock of the node when it wrote the report
  std::vector<std::string> problems;  ///< empty: healthy
  std::int64_t gpus = 0;
  std::int64_t network_ports = 0;  ///< active InfiniBand ports and interfaces
  std::int64_t memory_bytes = 0;
  std::int64_t oom_kills = 0;  ///< kills by the out-of-memory killer since the node booted
};

[[nodiscard]] std::string to_json(const NodeReport& report);
/// Nothing for text that is no report.
[[nodiscard]] std::optional<NodeReport> parse_node_report(const std::string& text);

/// A node of the allocation, in the order of preference.
struct Node {
  std::string name;
  int named = 0;        ///< failures that were attributed to it
  int last_named = 0;   ///< number of the last of them; 0: none
  std::string problem;  ///< of the last health check; empty: healthy
  [[nodiscard]] bool healthy() const { return problem.empty(); }
};

/// Enters the result of a health check. Nodes without a report do not answer. A node with fewer GPUs or network ports,
/// or with less memory, than most others is unhealthy, and one whose clock is not between `begin` and `end` (unix
/// seconds, with a tolerance of 5 s).
void apply_reports(std::vector<Node>& nodes, const std::vector<NodeReport>& reports, double begin, double end);

/// Nodes for the next start, at most `wanted`, in the order of the allocation. Healthy nodes that fewer failures were
/// attributed to come first, then those that were named longer ago, then `preferred` ones.
[[nodiscard]] std::vector<std::string> choose_nodes(const std::vector<Node>& nodes, int wanted,
                                                    const std::vector<std::string>& preferred);

/// "n1, n2 and 4 more".
[[nodiscard]] std::string node_list(const std::vector<std::string>& names);

}  // namespace trireme::cli
