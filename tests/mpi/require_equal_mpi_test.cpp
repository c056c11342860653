// SPDX-License-Identifier: Apache-2.0
//
// ranks: 1 3
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/mpi/broadcast.hpp"
#include "trireme/mpi/collective_try.hpp"
#include "trireme/mpi/communicator.hpp"
#include "trireme/mpi/require_equal.hpp"
#include "trireme/mpi/scatter.hpp"

namespace trireme::mpi {
namespace {

using testing::HasSubstr;

TEST(RequireEqual, IsSilentWhereAllTextsAreEqual) {
  const Communicator world = Communicator::from(MPI_COMM_WORLD);
  EXPECT_NO_THROW(require_equal(world, "the schedule", "unshard b0"));
  EXPECT_NO_THROW(require_equal(world, "nothing", ""));
}

TEST(BroadcastText, GoesInAsManyPiecesAsMpiCanCount) {
  const Communicator world = Communicator::from(MPI_COMM_WORLD);
  for (const std::size_t size : {0U, 1U, 999U, 1000U, 1001U, 2000U, 2500U}) {
    std::string text(size, ' ');
    for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>('a' + i * i % 23);
    for (int root = 0; root < world.size(); ++root)
      EXPECT_EQ(broadcast_text(world, world.rank() == root ? text : "another", root, 1000), text) << size;
  }
}

TEST(ScatterTexts, GivesEachRankItsOwnInAsManyPiecesAsMpiCanCount) {
  const Communicator world = Communicator::from(MPI_COMM_WORLD);
  const auto text_of = [](int rank, std::size_t size) {
    std::string text(rank == 1 ? 0 : size + static_cast<std::size_t>(rank), ' ');
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + (i * i + rank) % 23);
    return text;
  };
  for (const std::size_t size : {0U, 1U, 99U, 100U, 101U, 250U})
    for (const std::size_t most :
         {std::size_t{1}, 100 * static_cast<std::size_t>(world.size()), std::size_t{1} << 30}) {
      std::vector<std::string> texts;
      if (world.rank() == 0)
        for (int rank = 0; rank < world.size(); ++rank) texts.push_back(text_of(rank, size));
      EXPECT_EQ(scatter_texts(world, texts, most), text_of(world.rank(), size)) << size << " " << most;
    }
}

TEST(RequireEqual, NamesTheOddRankOnEveryRank) {
  const Communicator world = Communicator::from(MPI_COMM_WORLD);
  if (world.size() < 3) GTEST_SKIP() << "needs a majority";
  for (int odd = 0; odd < world.size(); ++odd) {
    try {
      require_equal(world, "batch.global", world.rank() == odd ? "48" : "64");
      ADD_FAILURE() << "no error";
    } catch (const CollectiveError& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      EXPECT_EQ(error.prints(), world.rank() == 0);
      ASSERT_EQ(error.failures().size(), 1U);
      EXPECT_EQ(error.failures().front().rank, odd);
      EXPECT_THAT(error.what(), HasSubstr("batch.global: rank " + std::to_string(odd) + " differs"));
      EXPECT_THAT(error.what(), HasSubstr("`48`"));
      EXPECT_THAT(error.what(), HasSubstr("`64`"));
    }
  }
}

TEST(RequireEqual, ThrowsTheSameOnEveryRankForHugeAndInvalidText) {
  const Communicator world = Communicator::from(MPI_COMM_WORLD);
  if (world.size() < 2) GTEST_SKIP() << "needs two texts";
  for (int odd = 0; odd < world.size(); ++odd)
    for (const std::string& common : {std::string(3'000'000, 'x'), std::string("\xff\xfe\x80"), std::string()}) {
      const std::string mine = world.rank() == odd ? common + "\n\xc3" : common;
      try {
        require_equal(world, "texts", mine);
        ADD_FAILURE() << "no error";
      } catch (const CollectiveError& error) {
        EXPECT_EQ(broadcast_text(world, error.what()), error.what());
        EXPECT_LT(std::string(error.what()).size(), 2000U);
      }
    }
}

}  // namespace
}  // namespace trireme::mpi
