// SPDX-License-Identifier: Apache-2.0
#include "train/directory_check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::train::directory_check_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(TooLittleSpace, CountsTheCheckpointsThatAreKeptAndTheOneBeforeTheOldestGoes) {
  const config::Checkpoint options{.directory = "out/checkpoints", .keep = 2};
  const Bytes one{std::int64_t{1} << 30};
  EXPECT_EQ(too_little_space(options, one, 0, Bytes{3 * one.value}), "");
  EXPECT_THAT(too_little_space(options, one, 0, Bytes{3 * one.value - 1}),
              AllOf(HasSubstr("3 more checkpoints of 1 GiB take 3 GiB"), HasSubstr("checkpoint.keep = 2")));
}

TEST(TooLittleSpace, LeavesOutTheCheckpointsThatAreThere) {
  const config::Checkpoint options{.directory = "out/checkpoints", .keep = 2};
  const Bytes one{std::int64_t{1} << 30};
  EXPECT_EQ(too_little_space(options, one, 2, one), "");
  EXPECT_EQ(too_little_space(options, one, 7, one), "");
  EXPECT_THAT(too_little_space(options, one, 7, Bytes{one.value - 1}), HasSubstr("1 more checkpoint of 1 GiB takes"));
}

TEST(TooLittleSpace, CountsTheBestCheckpoint) {
  const config::Checkpoint options{.directory = "out/checkpoints", .keep = 1, .keep_best = ""};
  EXPECT_THAT(too_little_space(options, Bytes{100}, 0, Bytes{299}), HasSubstr("3 more checkpoints"));
}

}  // namespace
}  // namespace trireme::train::directory_check_test

// Fault, start: too little disk space at the start -> warning
