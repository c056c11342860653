// SPDX-License-Identifier: Apache-2.0
#include "cli/supervise/nodes.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cli/supervise/restarts.hpp"

namespace trireme::cli::supervise_nodes_test {
namespace {

using Names = std::vector<std::string>;

std::vector<Node> three() { return {{.name = "n1"}, {.name = "n2"}, {.name = "n3"}}; }

NodeReport healthy(const std::string& name) {
  return {.node = name, .unix_seconds = 100, .gpus = 4, .network_ports = 2, .memory_bytes = 500'000'000'000};
}

TEST(ChooseNodes, KeepsNodesInUseAndReplacesTheNamedOne) {
  std::vector<Node> nodes = three();
  EXPECT_EQ(choose_nodes(nodes, 2, {"n1", "n2"}), (Names{"n1", "n2"}));
  EXPECT_EQ(choose_nodes(nodes, 2, {"n2", "n3"}), (Names{"n2", "n3"}));
  nodes[1].named = nodes[1].last_named = 1;
  EXPECT_EQ(choose_nodes(nodes, 2, {"n1", "n2"}), (Names{"n1", "n3"}));
}

TEST(ChooseNodes, UsesANamedNodeAgainWhenNoSpareIsLeft) {
  std::vector<Node> nodes = three();
  nodes[1].named = nodes[1].last_named = 1;
  nodes[2].problem = "does not answer";
  EXPECT_EQ(choose_nodes(nodes, 2, {"n1", "n3"}), (Names{"n1", "n2"}));
  nodes[2] = {.name = "n3", .named = 1, .last_named = 2};  // it returned: n2 failed longer ago
  EXPECT_EQ(choose_nodes(nodes, 2, {"n1", "n3"}), (Names{"n1", "n2"}));
  nodes[1].named = 2;
  EXPECT_EQ(choose_nodes(nodes, 2, {"n1", "n2"}), (Names{"n1", "n3"}));
}

TEST(ChooseNodes, NeverTakesUnhealthyNodes) {
  std::vector<Node> nodes = three();
  nodes[0].problem = "GPU 1 computes a wrong fp32 product";
  nodes[1].problem = "does not answer";
  EXPECT_EQ(choose_nodes(nodes, 2, {"n1", "n2"}), Names{"n3"});
  EXPECT_EQ(choose_nodes(nodes, 0, {}), Names{});
}

TEST(NodeReports, SurviveTheirText) {
  NodeReport report = healthy("n\"1");
  report.problems = {"GPU 0: lost"};
  report.oom_kills = 3;
  const auto parsed = parse_node_report(to_json(report));
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->node, report.node);
  EXPECT_EQ(parsed->problems, report.problems);
  EXPECT_EQ(parsed->oom_kills, 3);
  for (const char* text : {"", "{", "[]", "{\"node\": 3}", "null"}) EXPECT_FALSE(parse_node_report(text)) << text;
}

TEST(NodeReports, MakeSilentLesserAndProblematicNodesUnhealthy) {
  std::vector<Node> nodes = three();
  nodes.push_back({.name = "n4"});
  nodes.push_back({.name = "n5"});
  std::vector<NodeReport> reports{healthy("n1"), healthy("n2"), healthy("n3"), healthy("n4")};
  reports[1].gpus = 3;
  reports[2].problems = {"host memory does not keep its contents"};
  reports[3].unix_seconds = 160;
  apply_reports(nodes, reports, 99, 101);
  EXPECT_TRUE(nodes[0].healthy());
  EXPECT_EQ(nodes[1].problem, "3 GPUs, other nodes have 4");
  EXPECT_EQ(nodes[2].problem, "host memory does not keep its contents");
  EXPECT_EQ(nodes[3].problem, "its clock is wrong by 59 s");
  EXPECT_EQ(nodes[4].problem, "does not answer");
  reports[1] = healthy("n2");  // a node that returns
  reports[3].unix_seconds = 104;
  reports.push_back(healthy("n5"));
  reports.back().memory_bytes /= 2;
  apply_reports(nodes, reports, 99, 101);
  EXPECT_TRUE(nodes[1].healthy());
  EXPECT_TRUE(nodes[3].healthy());
  EXPECT_EQ(nodes[4].problem, "250 GB of memory, other nodes have 500");
  reports[0].network_ports = 0;
  apply_reports(nodes, reports, 99, 101);
  EXPECT_EQ(nodes[0].problem, fmt::format("0 active network ports, other nodes have {}", reports[1].network_ports));
}

TEST(RestartHistory, EndsARunThatMakesNoProgress) {
  RestartHistory history(2);
  EXPECT_FALSE(history.add({137, 40, false}));
  EXPECT_FALSE(history.add({137, 40, false}));
  EXPECT_FALSE(history.add({137, 41, false}));  // progress
  EXPECT_FALSE(history.add({7, 41, false}));
  EXPECT_TRUE(history.add({137, 30, false}));  // steps of earlier attempts
}

TEST(RestartHistory, EndsARunThatNeverTrains) {
  RestartHistory history(3);
  EXPECT_FALSE(history.add({137, 0, false}));
  EXPECT_FALSE(history.add({137, 0, false}));
  EXPECT_TRUE(history.add({137, 0, false}));
}

TEST(RestartHistory, OutOfMemoryTwiceAtOneStepEndsTheRun) {
  RestartHistory history(3);
  EXPECT_FALSE(history.add({137, 40, true}));
  EXPECT_FALSE(history.add({137, 55, true}));
  const auto reason = history.add({137, 55, true});
  ASSERT_TRUE(reason);
  EXPECT_NE(reason->find("ran out of memory twice after step 55"), std::string::npos);
}

TEST(Restarts, OnlyHangsAndSignalsAreTriedAgain) {
  for (const int code : {7, 137, 139, 134, 135}) EXPECT_TRUE(is_restartable_code(code)) << code;
  for (const int code : {0, 1, 2, 3, 4, 5, 6, 8, 75, 130, 143, 138}) EXPECT_FALSE(is_restartable_code(code)) << code;
}

TEST(Restarts, NeedTimeForAStartAndASave) {
  EXPECT_TRUE(fits_before(1000, 900, 40, 20));
  EXPECT_FALSE(fits_before(1000, 900, 60, 20));
  EXPECT_FALSE(fits_before(1000, 900, 0, 120));
}

}  // namespace
}  // namespace trireme::cli::supervise_nodes_test
