// SPDX-License-Identifier: Apache-2.0
// Damaged machine files: one error with file, line and column, or a machine that a step can be predicted on.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <regex>

#include "planner/damaged.hpp"
#include "trireme/base/error.hpp"
#include "trireme/planner/time/machine.hpp"
#include "trireme/planner/time/predict.hpp"

namespace trireme::planner::machine_fuzz_test {
namespace {

std::optional<Machine> read(const std::string& text) {
  static const std::regex one_line_with_place(R"(m\.toml:[1-9]\d*:[1-9]\d*: [^\n]+)");
  try {
    return parse_machine(text, "m.toml");
  } catch (const ConfigError& error) {
    EXPECT_TRUE(std::regex_match(error.what(), one_line_with_place)) << error.what();
    return std::nullopt;
  }
}

config::RunConfig small_run() {
  config::RunConfig config;
  config.model.vocab_size = 64;
  config.model.hidden_size = 16;
  config.model.intermediate_size = 32;
  config.model.layers = 2;
  config.model.heads = 2;
  config.model.kv_heads = 2;
  config.data.seq_len = 8;
  config.batch = {.global = 16, .micro = 1};
  config.memory.offload = config::Offload::optimizer;
  return config;
}

TEST(MachineFuzz, IsAnErrorWithItsPlaceOrAMachine) {
  const config::RunConfig config = small_run();
  constexpr unsigned rounds = 3000;
  int machines = 0, errors = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    Damage damage(round);
    std::string text(shipped_machines()[damage.below(shipped_machines().size())].text);
    for (std::size_t times = 1 + damage.below(2); times > 0; --times) text = damage.of(text, "=#");
    SCOPED_TRACE(text);
    const std::optional<Machine> machine = read(text);
    ++(machine ? machines : errors);
    if (!machine) continue;
    ASSERT_EQ(print_machine(parse_machine(print_machine(*machine), "printed")), print_machine(*machine));
    const Prediction step = predict(config, 16, *machine);
    for (const double seconds : {step.expected.seconds, step.fast, step.slow, step.mfu}) {
      ASSERT_TRUE(std::isfinite(seconds));
      ASSERT_GT(seconds, 0);
    }
  }
  EXPECT_GT(machines, 100);
  EXPECT_GT(errors, 1000);
}

TEST(MachineFuzz, TooLargeAndNoRegularFilesAreRefusedUnread) {
  EXPECT_THROW((void)load_machine("/dev/zero"), ConfigError);
  EXPECT_THROW((void)load_machine("/"), ConfigError);
  EXPECT_THROW((void)parse_machine(std::string(1000, '['), "m.toml"), ConfigError);
}

}  // namespace
}  // namespace trireme::planner::machine_fuzz_test
