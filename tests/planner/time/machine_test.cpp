// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/time/machine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "trireme/base/error.hpp"

namespace trireme::planner {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string shipped(std::string_view name) {
  for (const ShippedMachine& machine : shipped_machines())
    if (machine.name == name) return std::string(machine.text);
  return "";
}

/// A shipped file with one text replaced.
std::string with(const std::string& from, const std::string& to) {
  std::string text = shipped("h100-efa");
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string error_of(const std::string& text) {
  try {
    (void)parse_machine(text, "m.toml");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Machine, EveryShippedFileIsReadAndNamedAfterItself) {
  std::vector<std::string_view> names;
  for (const ShippedMachine& shipped : shipped_machines()) {
    const Machine machine = load_machine(std::string(shipped.name));
    EXPECT_EQ(machine.name, shipped.name);
    EXPECT_GT(machine.products.back().rate, 0) << shipped.name;
    EXPECT_LE(machine.memory_bandwidth, 10e12) << shipped.name;
    EXPECT_GT(machine.node_memory.value, 0) << shipped.name;
    EXPECT_GE(machine.node_bandwidth, machine.host_bandwidth) << shipped.name;
    names.push_back(shipped.name);
  }
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("a100", "a100-40gb", "b200", "gb200", "gb300", "gh200", "h100",
                                                     "h100-efa", "h200", "local", "mi300a", "mi300x"));
}

TEST(Machine, UnitsAreThoseOfTheKeys) {
  const Machine machine = load_machine("h100-efa");
  EXPECT_DOUBLE_EQ(machine.peak_flops, 989.5e12);
  EXPECT_EQ(machine.memory, Bytes{80'000'000'000});
  EXPECT_DOUBLE_EQ(machine.between.rank_latency, 3.93e-6);
  EXPECT_EQ(machine.gpus_per_node, 8);
  EXPECT_EQ(machine.node_memory, Bytes{std::int64_t{2} << 40});
  EXPECT_DOUBLE_EQ(machine.node_bandwidth, 328e9);
}

TEST(Machine, PrintedFilesReadBackTheSame) {
  for (const ShippedMachine& shipped : shipped_machines()) {
    const Machine machine = load_machine(std::string(shipped.name));
    const std::string printed = print_machine(machine);
    EXPECT_EQ(print_machine(parse_machine(printed, "printed")), printed);
    EXPECT_NEAR(parse_machine(printed, "printed").inside.bandwidth, machine.inside.bandwidth,
                1e-5 * machine.inside.bandwidth);
  }
}

TEST(Machine, NonsenseIsOneErrorWithLineAndColumn) {
  std::string parts = "a";
  while (parts.size() < 600'000) parts += ".a";
  EXPECT_THAT(error_of(with("[machine]", parts + " = 3\n[machine]")),
              HasSubstr("m.toml: not valid TOML: a key has too"));
  const std::vector<std::pair<std::string, std::string>> cases{
      {with("gpus_per_node = 8", "gpus_per_node = 0"), "m.toml:10:17: machine.gpus_per_node: expected a number from 1"},
      {with("gpus_per_node = 8", "gpus_per_node = 2.5"),
       "m.toml:10:17: machine.gpus_per_node: expected a whole number"},
      {with("gpus_per_node = 8", "gpus_per_node = true"), "m.toml:10:17: machine.gpus_per_node: expected a number"},
      {with("gpus_per_node = 8", "gpus_per_nod = 8"), "machine.gpus_per_nod: unknown key; did you mean gpus_per_node?"},
      {with("gpus_per_node = 8", ""), "m.toml:5:1: machine.gpus_per_node: missing"},
      {with("[gpu]", "[gpuu]"), ": gpuu: unknown section; expected [machine], [gpu]"},
      {with("[machine]", "loose = 3\n[machine]"), "m.toml:5:9: loose: a key outside of all sections"},
      {with("grade = \"fitted\"", "grade = \"good\""), ": machine.grade: expected \"nominal\", \"fitted\" or"},
      {with("memory = \"80GB\"", "memory = \"80 potatoes\""), ": gpu.memory: "},
      {with("node_memory = \"2TiB\"", "node_memory = 2"), ": host.node_memory: expected a string in quotes"},
      {with("node_memory = \"2TiB\"", "node_memory = \"0GB\""), ": host.node_memory: expected more than 0 bytes"},
      {with("node_bandwidth_gb_s = 328", "node_bandwidth_gb_s = -1"),
       ": host.node_bandwidth_gb_s: expected a number from 0 to"},
      {with("tflops = 610", "tflops = 1610"), ": gpu.products.tflops: more than gpu.peak_tflops"},
      {with("gflops = 34", "gflops = 0.5"), ": gpu.products.gflops: not larger than the one before"},
      {with("products = [", "products = 3 #"), ": gpu.products: expected a list of"},
      {with("p10 = 0.9", "p10 = 1.5"), ": inside.p10: expected a number from 0.01 to 1, found 1.5"},
      {with("memory_tb_s = ", "memory_tb_s = nan #"), ": gpu.memory_tb_s: expected a number"},
      {with("[host]", "[host"), ": not valid TOML: "},
      {"", "m.toml:1:1: machine.name: missing"},
  };
  for (const auto& [text, expected] : cases) {
    const std::string error = error_of(text);
    EXPECT_THAT(error, HasSubstr(expected));
    EXPECT_THAT(error, ::testing::MatchesRegex("m\\.toml:[0-9]+:[0-9]+: .*"));
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

TEST(Machine, AnUnknownNameListsTheShippedOnes) {
  try {
    (void)load_machine("h1000");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(
        error.what(),
        HasSubstr(
            "shipped are a100-40gb, a100, b200, gb200, gb300, gh200, h100-efa, h100, h200, local, mi300a, mi300x"));
  }
}

}  // namespace
}  // namespace trireme::planner
