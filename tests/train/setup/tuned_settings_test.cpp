// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/setup/tuned_settings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/setup/gemm.hpp"
#include "trireme/kernels/gemm.hpp"

namespace trireme::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(CpuName, ReportsModelAndInstructions) {
  EXPECT_EQ(cpu_name(), cpu_name());
  EXPECT_THAT(cpu_name(), testing::MatchesRegex(".+ \\([0-9a-f]+\\)"));
}

TEST(TunedSettings, NameTheLibrariesThatMultiply) {
  const kernels::GemmChoice before = kernels::gemm_choice();
  for (const std::string text :
       {"fp32=at,at,at bf16=at,at,at pairs=on", "fp32=blocked,at,blocked/at,at,blocked bf16=at,blocked,at pairs=off"}) {
    kernels::set_gemm_choice(kernels::parse_gemm_choice(text));
    EXPECT_THAT(current_tuned_settings(3), testing::Contains(std::pair<std::string, std::string>("gemm", text)));
  }
  EXPECT_NE(current_tuned_settings(3), current_tuned_settings(4));
  kernels::set_gemm_choice(before);
}

TEST(SavedPolicy, IsAskedForOnlyWhenItIsToBeChosen) {
  config::RunConfig config;
  config.checkpoint.directory = "/no/such/directory";
  EXPECT_FALSE(saved_policy(config, {}));
  config.sync.policy = config::SyncPolicy::automatic;
  EXPECT_FALSE(saved_policy(config, {})) << "there is no checkpoint";
}

}  // namespace
}  // namespace trireme::train
