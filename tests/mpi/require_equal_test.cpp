// SPDX-License-Identifier: Apache-2.0
#include "trireme/mpi/require_equal.hpp"

#include <gtest/gtest.h>

namespace trireme::mpi {
namespace {

TEST(Disagreement, NamesTheMinority) {
  EXPECT_TRUE(disagreement("the mesh", {5, 5, 9, 5})
                  .starts_with("The ranks do not agree on the mesh: rank 2 differs from ranks 0, 1, 3."));
  EXPECT_TRUE(disagreement("the mesh", {9, 5, 5, 5})
                  .starts_with("The ranks do not agree on the mesh: rank 0 differs from ranks 1, 2, 3."));
  EXPECT_TRUE(
      disagreement("x", {1, 2, 3, 3}).starts_with("The ranks do not agree on x: ranks 0, 1 differ from ranks 2, 3."));
}

TEST(Disagreement, TakesTheLowestRanksSideOfEqualHalves) {
  EXPECT_TRUE(
      disagreement("x", {7, 3, 3, 7}).starts_with("The ranks do not agree on x: ranks 1, 2 differ from ranks 0, 3."));
}

TEST(Disagreement, IsShortForManyRanks) {
  std::vector<std::uint64_t> hashes(1000, 4);
  hashes[77] = 5;
  EXPECT_TRUE(
      disagreement("x", hashes)
          .starts_with("The ranks do not agree on x: rank 77 differs from ranks 0, 1, 2, 3, 4, 5, 6, 7 and 991 more."));
}

TEST(FirstDifference, PointsAtTheOperation) {
  EXPECT_EQ(first_difference({.rank = 0, .text = "backward b1\nreduce_scatter b1\nreduce_scatter b0\n"},
                             {.rank = 3, .text = "backward b1\nreduce_scatter b0\nreduce_scatter b1\n"}),
            "Line 2: rank 0 has `reduce_scatter b1`, rank 3 has `reduce_scatter b0`.");
  EXPECT_EQ(first_difference({.rank = 1, .text = "a"}, {.rank = 2, .text = "a\nb"}),
            "Line 2: rank 1 has ``, rank 2 has `b`.");
}

}  // namespace
}  // namespace trireme::mpi
