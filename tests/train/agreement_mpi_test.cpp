// SPDX-License-Identifier: Apache-2.0
//
// A rank of another build, or with another view of the mesh, is named before anything is trained.
// ranks: 2 3
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/engine/agreement.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"

namespace trireme::train {
namespace {

using testing::HasSubstr;

class Agreement : public testing::Test {
 protected:
  /// What the ranks say with `fault` in force; ranks are shards.
  [[nodiscard]] std::string said(const std::string& fault) const {
    const mesh::Mesh mesh{.shard = world_.size()};
    fault::set_rank(world_.rank());
    fault::arm(fault);
    std::string message;
    try {
      agree_on_build_and_places(world_, mesh, DpRank{world_.rank()});
    } catch (const ConfigError& error) {
      message = std::string("2 ") + error.what();
    } catch (const EnvironmentError& error) {
      message = std::string("5 ") + error.what();
    }
    fault::arm("");
    fault::set_rank(-1);
    return message;
  }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
};

TEST_F(Agreement, IsSilentWhereAllAreAlike) { EXPECT_EQ(said(""), ""); }

TEST_F(Agreement, NamesTheRankOfAnotherBuild) {
  const std::string message = said("start.build:nan:1");
  EXPECT_THAT(message, testing::StartsWith("2 The ranks do not agree on the build: rank 1 differs"));
  EXPECT_THAT(message, testing::ContainsRegex("rank 1 has `git [^`]*-another`"));
}

TEST_F(Agreement, NamesTheRankThatWorksInAnothersPlace) {
  const std::string message = said("start.dp_rank:nan:1");
  EXPECT_THAT(message, testing::StartsWith("5 rank 1 works as dp rank 0 instead of 1"));
}

TEST(Misplaced, ListsEveryRankThatIs) {
  const mesh::Mesh mesh{.replicate = 2, .shard = 1, .tensor = 2};
  EXPECT_EQ(misplaced(mesh, {0, 0, 1, 1}), "");
  EXPECT_EQ(misplaced(mesh, {0, 1, 1, 0}),
            "rank 1 works as dp rank 1 instead of 0, rank 3 works as dp rank 0 instead of 1");
}

}  // namespace
}  // namespace trireme::train
