// SPDX-License-Identifier: Apache-2.0
#include "cli/start/launcher.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "trireme/base/error.hpp"

namespace trireme::cli {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

std::optional<Launched> launched_with(const Variables& variables) {
  return launched([&](std::string_view name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  });
}

std::string complaint(const std::optional<Launched>& launched, int mpi_ranks,
                      std::string_view library = "Open MPI v4.1.4") {
  try {
    check_launcher(launched, mpi_ranks, library);
  } catch (const EnvironmentError& error) {
    return error.what();
  }
  return "";
}

TEST(Launched, IsNothingForAProgramStartedAlone) {
  EXPECT_FALSE(launched_with({}).has_value());
  EXPECT_FALSE(launched_with({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}).has_value())
      << "a batch script is no step of its job";
}

TEST(Launched, RecognizesSrunAndMpirun) {
  const auto slurm = launched_with({{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "3"}});
  ASSERT_TRUE(slurm.has_value());
  EXPECT_EQ(slurm->by, "srun");
  EXPECT_EQ(slurm->ranks, 4);
  EXPECT_EQ(slurm->rank, 3);
}

TEST(Launched, CountsTheRanksOfANodeUnderMpirun) {
  const auto mpirun = launched_with(
      {{"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_RANK", "5"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  ASSERT_TRUE(mpirun.has_value());
  EXPECT_EQ(mpirun->node_ranks, 4);
  EXPECT_EQ(launched_with({{"PMI_SIZE", "4"}, {"PMI_RANK", "0"}})->node_ranks, 0);
}

TEST(CrowdedNodeWarning, CountsRanksForACore) {
  EXPECT_EQ(crowded_node_warning(8, 2), "");
  EXPECT_EQ(crowded_node_warning(0, 2), "");
  EXPECT_THAT(crowded_node_warning(63, 2), testing::HasSubstr("63 ranks share the 2 cores of this node: the start "
                                                              "takes 32 times as long"));
}

TEST(CheckIntroduction, RefusesSrunWithoutPmixForOpenMpiOnly) {
  const auto refused = [](const Variables& variables, std::string_view library) {
    const auto variable = [&](std::string_view name) {
      const auto found = variables.find(name);
      return found == variables.end() ? std::string() : found->second;
    };
    try {
      check_introduction(launched(variable), variable, library);
    } catch (const EnvironmentError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const Variables step{{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "0"}};
  EXPECT_THAT(refused(step, "Open MPI v4.1.4"), testing::HasSubstr("srun --mpi=pmix"));
  EXPECT_EQ(refused(step, "MPICH Version: 4.0.2"), "");
  EXPECT_EQ(refused({}, "Open MPI v4.1.4"), "");
  for (const char* told : {"PMIX_RANK", "PMI_RANK", "PMI_FD"}) {
    Variables with = step;
    with[told] = "0";
    EXPECT_EQ(refused(with, "Open MPI v4.1.4"), "") << told;
  }
  EXPECT_EQ(refused({{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}}, "Open MPI v4.1.4"), "");
  EXPECT_EQ(
      refused({{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}}, "Open MPI v4.1.4"),
      "");
}

TEST(Launched, BelievesTheInnermostLauncher) {
  // mpirun within an allocation starts its daemons by srun, one a node.
  const auto both = launched_with({{"SLURM_STEP_NUM_TASKS", "2"},
                                   {"SLURM_PROCID", "1"},
                                   {"OMPI_COMM_WORLD_SIZE", "8"},
                                   {"OMPI_COMM_WORLD_RANK", "5"}});
  ASSERT_TRUE(both.has_value());
  EXPECT_EQ(both->ranks, 8);
  EXPECT_EQ(both->rank, 5);
}

TEST(CheckLauncher, RefusesTasksThatMpiDoesNotJoin) {
  const Launched srun{.by = "srun", .ranks = 4, .rank = 0};
  EXPECT_EQ(complaint(srun, 4), "");
  EXPECT_EQ(complaint(std::nullopt, 1), "");
  EXPECT_THAT(complaint(srun, 1), testing::HasSubstr("srun started 4 tasks, but MPI sees 1 rank"));
}

TEST(CheckLauncher, NamesThePluginThatTheLibraryListensTo) {
  const Launched srun{.by = "srun", .ranks = 4, .rank = 0};
  EXPECT_THAT(complaint(srun, 1, "Open MPI v4.1.4"), testing::HasSubstr("--mpi=pmix "));
  for (const char* library : {"MPICH Version:\t4.0.2", "MPI VERSION    : CRAY MPICH version 8.1.28",
                              "MVAPICH2 Version: 2.3.7", "Intel(R) MPI Library 2021.11 for Linux* OS"})
    EXPECT_THAT(complaint(srun, 1, library), testing::HasSubstr("--mpi=pmi2 ")) << library;
}

}  // namespace
}  // namespace trireme::cli

// Fault, start: more than four ranks a core -> warning before libtorch is loaded
