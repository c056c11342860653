// SPDX-License-Identifier: Apache-2.0
#include "cli/supervise/nodes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "trireme/base/text.hpp"

namespace trireme::cli {
namespace {

constexpr double clock_tolerance_seconds = 5;
constexpr double least_memory_share = 0.9;  // of the usual one: kernels reserve different amounts

/// The value that most reports have; the larger one of two that are equally frequent.
std::int64_t most_frequent(const std::vector<NodeReport>& reports, std::int64_t NodeReport::*member) {
  std::map<std::int64_t, int> counts;
  for (const NodeReport& report : reports) ++counts[report.*member];
  std::int64_t value = 0;
  int most = 0;
  for (const auto& [candidate, count] : counts)
    if (count >= most) value = candidate, most = count;
  return value;
}

}  // namespace

std::string to_json(const NodeReport& report) {
  nlohmann::ordered_json out;
  out["node"] = report.node;
  out["unix_seconds"] = report.unix_seconds;
  out["problems"] = report.problems;
  out["gpus"] = report.gpus;
  out["network_ports"] = report.network_ports;
  out["memory_bytes"] = report.memory_bytes;
  out["oom_kills"] = report.oom_kills;
  return out.dump() + "\n";
}

std::optional<NodeReport> parse_node_report(const std::string& text) {
  try {
    const nlohmann::json in = nlohmann::json::parse(text);
    return NodeReport{.node = in.at("node"),
                      .unix_seconds = in.at("unix_seconds"),
                      .problems = in.at("problems"),
                      .gpus = in.at("gpus"),
                      .network_ports = in.at("network_ports"),
                      .memory_bytes = in.at("memory_bytes"),
                      .oom_kills = in.at("oom_kills")};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

void apply_reports(std::vector<Node>& nodes, const std::vector<NodeReport>& reports, double begin, double end) {
  const std::int64_t gpus = most_frequent(reports, &NodeReport::gpus);
  const std::int64_t ports = most_frequent(reports, &NodeReport::network_ports);
  const std::int64_t memory = most_frequent(reports, &NodeReport::memory_bytes);
  for (Node& node : nodes) {
    const auto found = std::ranges::find(reports, node.name, &NodeReport::node);
    if (found == reports.end()) {
      node.problem = "does not answer";
      continue;
    }
    std::vector<std::string> problems = found->problems;
    if (found->gpus < gpus) problems.push_back(fmt::format("{} GPUs, other nodes have {}", found->gpus, gpus));
    if (found->network_ports < ports)
      problems.push_back(fmt::format("{} active network ports, other nodes have {}", found->network_ports, ports));
    if (static_cast<double>(found->memory_bytes) < least_memory_share * static_cast<double>(memory))
      problems.push_back(fmt::format("{:.0f} GB of memory, other nodes have {:.0f}",
                                     static_cast<double>(found->memory_bytes) / 1e9,
                                     static_cast<double>(memory) / 1e9));
    const double wrong = std::max(begin - found->unix_seconds, found->unix_seconds - end);
    if (wrong > clock_tolerance_seconds) problems.push_back(fmt::format("its clock is wrong by {:.0f} s", wrong));
    node.problem = join(problems, "; ");
  }
}

std::vector<std::string> choose_nodes(const std::vector<Node>& nodes, int wanted,
                                      const std::vector<std::string>& preferred) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].healthy()) order.push_back(i);
  std::ranges::stable_sort(order, {}, [&](std::size_t i) {
    const bool is_preferred = std::ranges::find(preferred, nodes[i].name) != preferred.end();
    return std::tuple(nodes[i].named, nodes[i].last_named, !is_preferred);
  });
  order.resize(std::min(order.size(), static_cast<std::size_t>(std::max(wanted, 0))));
  std::ranges::sort(order);
  std::vector<std::string> chosen;
  for (const std::size_t i : order) chosen.push_back(nodes[i].name);
  return chosen;
}

std::string node_list(const std::vector<std::string>& names) {
  constexpr std::size_t shown = 8;
  if (names.size() <= shown) return join(names, ", ");
  return fmt::format("{} and {} more", join({names.begin(), names.begin() + shown}, ", "), names.size() - shown);
}

}  // namespace trireme::cli
