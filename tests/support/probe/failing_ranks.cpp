// SPDX-License-Identifier: Apache-2.0
//
// Not a test: what tests/support/mpi_main_test.sh runs to see how mpi_main.cpp reports a rank that fails or throws.
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace {

bool is_rank_1_asked_to(const std::string& action) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const char* asked = std::getenv("PROBE");
  return rank == 1 && asked != nullptr && asked == action;
}

TEST(Probe, MayFail) { EXPECT_FALSE(is_rank_1_asked_to("fail")) << "as asked"; }

TEST(Probe, MayThrow) {
  if (is_rank_1_asked_to("throw")) throw std::runtime_error("thrown as asked");
  MPI_Barrier(MPI_COMM_WORLD);  // where the other ranks would wait for ever
}

}  // namespace
