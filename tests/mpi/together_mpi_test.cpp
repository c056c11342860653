// SPDX-License-Identifier: Apache-2.0
//
// ranks: 1 3
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/mpi/communicator.hpp"
#include "trireme/mpi/mpi.hpp"
#include "trireme/mpi/together.hpp"

namespace trireme::mpi {
namespace {

using testing::HasSubstr;

TEST(Together, IsSilentWhereAllRanksDoTheirWork) {
  const Communicator world = Communicator::from(MPI_COMM_WORLD);
  int done = 0;
  EXPECT_NO_THROW(together(world, [&] { ++done; }));
  EXPECT_EQ(done, 1);
}

TEST(Together, ThrowsOnEveryRankWhatTheFirstThatFailedSays) {
  const Communicator world = Communicator::from(MPI_COMM_WORLD);
  for (int first = 0; first < world.size(); ++first) {
    int printing = 0;
    try {
      together(world, [&] {
        if (world.rank() < first) return;
        if (world.rank() == first) throw DataError("no tokens.bin\nin this directory");
        throw ConfigError("another mistake, of a later rank");
      });
      ADD_FAILURE() << "no error on rank " << world.rank();
    } catch (const SharedError& error) {
      EXPECT_EQ(error.code(), ExitCode::data);
      EXPECT_THAT(error.what(), HasSubstr("no tokens.bin\nin this directory"));
      EXPECT_EQ(std::string(error.what()).starts_with("[rank "), first != 0) << "which rank, unless it is the first";
      printing = error.prints() ? 1 : 0;
    }
    int printed = 0;
    check(MPI_Allreduce(&printing, &printed, 1, MPI_INT, MPI_SUM, world.handle()), "count who prints");
    EXPECT_EQ(printed, 1);
  }
}

}  // namespace
}  // namespace trireme::mpi
