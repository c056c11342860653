// SPDX-License-Identifier: Apache-2.0
#include "train/setup/batch_job.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "train/setup/stop_command.hpp"

namespace trireme::train {
namespace {

using testing::HasSubstr;

BatchJob job_with(std::map<std::string, std::string> variables) {
  return batch_job([&](std::string_view name) { return variables[std::string(name)]; });
}

TEST(BatchJob, IsLoggedWithItsNodesAndRestarts) {
  EXPECT_EQ(to_text(job_with({})), "");
  EXPECT_EQ(to_text(job_with({{"SLURM_JOB_ID", "12"}, {"SLURM_JOB_NODELIST", "n[1-2]"}})), "Slurm 12 on n[1-2]");
  EXPECT_EQ(to_text(job_with({{"SLURM_JOB_ID", "14"},
                              {"SLURM_ARRAY_JOB_ID", "12"},
                              {"SLURM_ARRAY_TASK_ID", "3"},
                              {"SLURM_JOB_NODELIST", "n1"},
                              {"SLURM_RESTART_COUNT", "2"}})),
            "Slurm 14 (12_3) on n1, restart 2");
}

TEST(StopCommand, SelectsOneTaskOfAnArray) {
  EXPECT_EQ(stop_command(job_with({{"SLURM_JOB_ID", "12"}})), "scancel --signal=USR1 12");
  EXPECT_EQ(
      stop_command(job_with({{"SLURM_JOB_ID", "12"}, {"SLURM_ARRAY_JOB_ID", "12"}, {"SLURM_ARRAY_TASK_ID", "3"}})),
      "scancel --signal=USR1 12_3");
}

TEST(TooFewCores, AreReportedWithNumbers) {
  const mpi::Topology topology{
      .host = "n1", .node_ranks = 4, .rank_cores = 8, .mask_ranks = 4, .open_cores = 8, .node_cores = 8};
  EXPECT_EQ(too_few_cores(job_with({}), topology, 2), "");
  EXPECT_THAT(too_few_cores(job_with({}), topology, 16),
              testing::AllOf(HasSubstr("n1: 4 ranks of 16 threads need 64 cores, the node gives them 8"),
                             HasSubstr("at most 2")));
  const BatchJob unsaid = job_with({{"SLURM_JOB_ID", "12"}});
  EXPECT_EQ(too_few_cores(unsaid, topology, 2), "");
  EXPECT_THAT(too_few_cores(unsaid, topology, 3), HasSubstr("n1: 4 ranks of 3 threads need 12 cores, the job has 8"));
  const BatchJob fewer = job_with({{"SLURM_JOB_ID", "12"}, {"SLURM_CPUS_ON_NODE", "2"}});
  EXPECT_THAT(too_few_cores(fewer, topology, 1), HasSubstr("need 4 cores, the job has 2"));
  EXPECT_THAT(too_few_cores(fewer, topology, 1), HasSubstr("--cpus-per-task=1"));
}

TEST(TooFewCores, AreThoseOfAMaskThatRanksShareWhileTheNodeHasMore) {
  mpi::Topology bound{
      .host = "n1", .node_ranks = 2, .rank_cores = 1, .mask_ranks = 2, .open_cores = 8, .node_cores = 1};
  EXPECT_THAT(too_few_cores(job_with({}), bound, 1),
              testing::AllOf(HasSubstr("2 ranks of 1 thread need 2 cores, their affinity mask has 1"),
                             HasSubstr("The node has 8"), HasSubstr("--bind-to core")));
  bound.open_cores = 1;
  EXPECT_EQ(too_few_cores(job_with({}), bound, 1), "") << "oversubscribed on purpose";
  const mpi::Topology apart{.host = "n1", .node_ranks = 2, .rank_cores = 2, .open_cores = 8, .node_cores = 4};
  EXPECT_EQ(too_few_cores(job_with({}), apart, 2), "");
  EXPECT_THAT(too_few_cores(job_with({}), apart, 3),
              HasSubstr("1 rank of 3 threads need 3 cores, their affinity mask"));
}

}  // namespace
}  // namespace trireme::train

// Fault, start: more threads than cores, ranks bound to the same cores -> warning with numbers
