// SPDX-License-Identifier: Apache-2.0
//
// The main function of *_mpi_test.cpp: every rank runs the same tests in the same order. Rank 0 prints the progress,
// every rank its own failures; the exit code is agreed. A test must not skip a collective after a failure: use EXPECT
// around collectives, ASSERT only where all ranks see the same. An exception that leaves a test ends the whole job.
// `--file save_mpi_test` runs the tests of that source only; further arguments are GoogleTest's.
#include <gtest/gtest.h>
#include <mpi.h>
#include <unistd.h>

#include <Kokkos_Core.hpp>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>

#include "base/library_settings.hpp"

namespace {

std::string prefixed(const std::string& text, int rank) {
  const std::string prefix = "[rank " + std::to_string(rank) + "] ";
  std::string result = prefix;
  for (const char c : text) {
    result += c;
    if (c == '\n') result += prefix;
  }
  return result;
}

class RankFailures : public testing::EmptyTestEventListener {
 public:
  explicit RankFailures(int rank) : rank_(rank) {}

 private:
  void OnTestStart(const testing::TestInfo& test) override {
    test_ = std::string(test.test_suite_name()) + "." + test.name();
  }

  // GoogleTest holds its lock here: asking it for the current test would wait for ever.
  void OnTestPartResult(const testing::TestPartResult& part) override {
    if (!part.failed()) return;
    const std::string where = part.file_name() ? part.file_name() : "unknown file";
    const std::string text = test_ + ": " + where + ":" + std::to_string(part.line_number()) + "\n" + part.message();
    std::fprintf(stderr, "%s\n", prefixed(text, rank_).c_str());
  }

  int rank_;
  std::string test_ = "outside a test";
};

/// Selects the tests that stand in `<name>.cpp`; false if there are none.
bool select_tests_of(const std::string& name) {
  const auto& all = *testing::UnitTest::GetInstance();
  std::string filter;
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const testing::TestInfo& test = *suite.GetTestInfo(t);
      if (std::filesystem::path(test.file()).stem() != name) continue;
      filter += std::string(filter.empty() ? "" : ":") + suite.name() + "." + test.name();
    }
  }
  if (!filter.empty()) testing::GTEST_FLAG(filter) = filter;
  return !filter.empty();
}

int run_all_tests(int rank) {
  try {
    return RUN_ALL_TESTS();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", prefixed(std::string("a test threw: ") + error.what(), rank).c_str());
  } catch (...) {
    std::fprintf(stderr, "%s\n", prefixed("a test threw something that is no std::exception", rank).c_str());
  }
  MPI_Abort(MPI_COMM_WORLD, 1);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  trireme::set_for_libraries();
  testing::InitGoogleTest(&argc, argv);
  testing::GTEST_FLAG(catch_exceptions) = false;
  if (argc == 3 && std::string(argv[1]) == "--file" && !select_tests_of(argv[2])) {
    std::fprintf(stderr, "no test of %s.cpp is in this program\n", argv[2]);
    return 2;
  }
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (provided < MPI_THREAD_MULTIPLE) {
    if (rank == 0) std::fprintf(stderr, "this MPI does not provide MPI_THREAD_MULTIPLE\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }

  int failed = 0;
  {
    const Kokkos::ScopeGuard kokkos(Kokkos::InitializationSettings().set_disable_warnings(true));
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    if (rank != 0) delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new RankFailures(rank));
    failed = run_all_tests(rank);
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  }
  MPI_Finalize();
  // Not with the destructors of libtorch's static objects, which take 0.1 s on each rank.
  (void)std::fflush(nullptr);
  ::_exit(failed);
}
