// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi_transport.hpp"

#include <gtest/gtest.h>

namespace trireme::comm {
namespace {

std::int64_t staging_of(std::int64_t ranks, Bytes bytes = mpi_staging) {
  const std::int64_t slot_bytes = 4 * (ranks - 1);
  return 2 * slot_bytes * chunk_elements(slot_bytes, bytes);
}

TEST(ChunkElements, FillTheStagingOfFewRanks) {
  EXPECT_EQ(chunk_elements(4, mpi_staging), mpi_staging.value / 8);
  EXPECT_EQ(chunk_elements(4 * 31, Bytes{1}), 1024);
}

TEST(ChunkElements, KeepTheStagingBoundedWithTheRanks) {
  for (const std::int64_t ranks : {2, 64, 129, 1024, 4096, 16384, 65536})
    EXPECT_LE(staging_of(ranks), most_mpi_staging.value) << ranks;
  EXPECT_GT(staging_of(16384), most_mpi_staging.value / 2) << "messages are as long as that allows";
  EXPECT_EQ(chunk_elements(std::int64_t{1} << 40, mpi_staging), 16) << "never nothing";
}

TEST(ChunkElements, FollowALargerStaging) { EXPECT_GT(staging_of(64, Bytes{64 << 20}), most_mpi_staging.value); }

}  // namespace
}  // namespace trireme::comm
