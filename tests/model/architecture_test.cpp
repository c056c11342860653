// SPDX-License-Identifier: Apache-2.0
#include "trireme/model/architecture.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "trireme/base/error.hpp"
#include "trireme/model/model.hpp"

namespace trireme::model::architecture_test {
namespace {

config::Model small(const Architecture& a) {
  config::Model config{.architecture = std::string(a.name),
                       .vocab_size = 97,
                       .hidden_size = 24,
                       .intermediate_size = 40,
                       .layers = 2,
                       .heads = 4};
  if (a.decoder.learned_positions) config.positions = 8;
  return config;
}

std::string message_of(const config::Model& config) {
  try {
    (void)build(config);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Architectures, NameEveryTensorOnceAndNoneThatIsNotThere) {
  for (const Architecture& a : architectures()) {
    std::set<std::string_view> tensors;
    for (const NameRow& row : a.names) EXPECT_TRUE(tensors.insert(row.tensor).second) << a.name << ": " << row.tensor;
    config::Model everything = small(a);
    std::set<std::string> names;
    for (const ParameterBlock& block : build(everything).parameter_blocks)
      for (const Parameter& p : block.parameters)
        EXPECT_TRUE(names.insert(p.name).second) << a.name << ": " << p.name << " is there twice";
  }
}

TEST(Architectures, AnUnknownNameListsThoseThereAre) {
  const std::string message = message_of({.architecture = "lama"});
  for (const Architecture& a : architectures()) EXPECT_NE(message.find(a.name), std::string::npos) << message;
}

TEST(Architectures, WithRopeRequireAnEvenHeadDim) {
  for (const Architecture& a : architectures()) {
    config::Model config = small(a);
    config.hidden_size = 4 * 9;
    EXPECT_EQ(message_of(config).find("model.head_dim = 9 is odd; RoPE requires an even head_dim: use 8 or 10") !=
                  std::string::npos,
              !a.decoder.learned_positions)
        << a.name;
  }
}

}  // namespace
}  // namespace trireme::model::architecture_test
