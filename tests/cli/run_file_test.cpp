// SPDX-License-Identifier: Apache-2.0
#include "cli/run_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::cli {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(DifferingKeys, AreNoneForTheSameRun) { EXPECT_THAT(differing_keys({}, 0, {}, 1), IsEmpty()); }

TEST(DifferingKeys, NameEachKeyWithBothValuesAndRanks) {
  config::RunConfig first, other;
  other.data.seq_len = 64;
  other.optimizer.lr = 0.5;
  other.data.skip_to = 12;
  EXPECT_THAT(differing_keys(first, 0, other, 5), ElementsAre("data.seq_len = not set on rank 0, 64 on rank 5",
                                                              "data.skip_to = not set on rank 0, 12 on rank 5",
                                                              "optimizer.lr = 0.0003 on rank 0, 0.5 on rank 5"));
}

}  // namespace
}  // namespace trireme::cli
