// SPDX-License-Identifier: Apache-2.0
#include "train/save/checkpoint_files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::train {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

TEST(RanksPerFileHint, IsAFileANodeWhereFilesAreMany) {
  EXPECT_THAT(ranks_per_file_hint({.shard = 16384}, 1, 8),
              testing::AllOf(HasSubstr("16384 files"), HasSubstr("ranks_per_file = 8"), HasSubstr("makes it 2048")));
  EXPECT_THAT(ranks_per_file_hint({.replicate = 4, .shard = 512}, 2, 4), HasSubstr("ranks_per_file = 4"));
}

TEST(RanksPerFileHint, CountsTheDataParallelRanksOfANode) {
  EXPECT_THAT(ranks_per_file_hint({.shard = 2048, .tensor = 4}, 1, 8),
              testing::AllOf(HasSubstr("8192 files"), HasSubstr("ranks_per_file = 2"), HasSubstr("makes it 4096")));
}

TEST(RanksPerFileHint, IsSilentWhereFilesAreFewOrShared) {
  EXPECT_THAT(ranks_per_file_hint({.shard = 1000}, 1, 8), IsEmpty());
  EXPECT_THAT(ranks_per_file_hint({.shard = 1001}, 1, 8), HasSubstr("1001 files"));
  EXPECT_THAT(ranks_per_file_hint({.shard = 16384}, 8, 8), IsEmpty()) << "2,048 files, one a node";
  EXPECT_THAT(ranks_per_file_hint({.shard = 2048, .tensor = 8}, 1, 8), IsEmpty())
      << "a node has one data-parallel rank";
  EXPECT_THAT(ranks_per_file_hint({.shard = 4096}, 1, 1), IsEmpty());
}

}  // namespace
}  // namespace trireme::train
