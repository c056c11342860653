// SPDX-License-Identifier: Apache-2.0
#include "cli/supervise/evidence.hpp"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <string_view>

namespace trireme::cli::supervise_evidence_test {
namespace {

using Names = std::set<std::string>;

Evidence of(std::initializer_list<std::string_view> lines) {
  Evidence evidence;
  for (const std::string_view line : lines) evidence.look(line);
  return evidence;
}

// Printed by Slurm 22.05 with PMIx.
TEST(Evidence, TheFirstTaskThatASignalEndedNamesItsNode) {
  const Evidence evidence = of({"srun: error: n2: task 3: Killed",
                                "slurmstepd-n1: error: *** STEP 1.0 ON n1 CANCELLED AT 2026-11-28T16:46:09 ***",
                                "srun: Job step aborted: Waiting up to 12 seconds for job step to finish.",
                                "srun: error: n2: task 2: Killed", "srun: error: n1: tasks 0-1: Killed"});
  EXPECT_TRUE(evidence.failed());
  EXPECT_EQ(evidence.nodes(), Names{"n2"});
  EXPECT_EQ(evidence.line(), "srun: error: n2: task 3: Killed");
  EXPECT_FALSE(evidence.out_of_memory());
}

TEST(Evidence, TasksKilledByTheLauncherNameNoNode) {
  EXPECT_TRUE(of({"srun: Job step aborted: Waiting up to 12 seconds for job step to finish.",
                  "srun: error: n1: tasks 0-1: Killed"})
                  .nodes()
                  .empty());
  EXPECT_TRUE(of({"srun: error: n1: task 0: Exited with exit code 2"}).nodes().empty());
  EXPECT_FALSE(of({"srun: error: n1: task 0: Exited with exit code 2"}).failed());
}

TEST(Evidence, SlurmNamesLostNodes) {
  EXPECT_EQ(of({"srun: error: Node failure on n2"}).nodes(), Names{"n2"});
  EXPECT_EQ(
      of({"srun: error: Task launch for StepId=5.1 failed on node gpu-07: Communication connection failure"}).nodes(),
      Names{"gpu-07"});
}

TEST(Evidence, RanksNameTheSilentAndTheEndedOnes) {
  EXPECT_EQ(
      of({"[rank 0 n1] error: Hang: all_gather #7 (8 B) on shard/gather for \"unshard b0, step 8\" still waits for "
          "rank 3. Wrote nothing: rank 3 on n2."})
          .nodes(),
      Names{"n2"});
  EXPECT_EQ(
      of({"[rank 1 n1] error: Hang: x lost the connection to rank 2 on n2. That rank, or its node, has ended: look "
          "at its last messages. No longer running: rank 4 on n3, rank 5 on n3.example.org, and 6 more."})
          .nodes(),
      (Names{"n3", "n3.example.org"}));
  EXPECT_EQ(
      of({"[rank 1 n1] error: Hang: x lost the connection to rank 2 on n2. That rank, or its node, has ended"}).nodes(),
      Names{"n2"});
  const Evidence nobody = of({"[rank 1 n1] error: Hang: step 8 has been in \"reading a batch\" for 12 s."});
  EXPECT_TRUE(nobody.failed());
  EXPECT_TRUE(nobody.nodes().empty());
}

TEST(Evidence, OpenMpiNamesKilledRanksAndLostDaemons) {
  EXPECT_EQ(of({"mpirun noticed that process rank 1 with PID 4711 on node b exited on signal 9 (Killed)."}).nodes(),
            Names{"b"});
  EXPECT_EQ(of({"mpiexec noticed that process rank 1 with PID 7172 on node b exited on signal 9 (Killed)."}).nodes(),
            Names{"b"});
  EXPECT_EQ(of({"ORTE has lost communication with a remote daemon.", "  HNP daemon   : [[1,0],0] on node a",
                "  Remote daemon: [[1,0],1] on node b"})
                .nodes(),
            Names{"b"});
}

TEST(Evidence, TheOutOfMemoryKillerIsSeen) {
  EXPECT_TRUE(of({"srun: error: n2: task 3: Out Of Memory"}).out_of_memory());
  EXPECT_TRUE(of({"slurmstepd: error: Detected 1 oom_kill event in StepId=3.0. Some of the step tasks have been OOM "
                  "Killed."})
                  .out_of_memory());
}

TEST(Evidence, StragglersAreNoFailure) {
  Evidence evidence;
  evidence.look("2026-11-28T22:31:04.976Z warning saved: the run stops to replace node n2,n4.cluster, a straggler");
  EXPECT_FALSE(evidence.failed());
  EXPECT_TRUE(evidence.nodes().empty());
  EXPECT_EQ(evidence.stragglers(), (std::set<std::string>{"n2", "n4.cluster"}));
}

TEST(Evidence, MessagesOfARunAreNoFailure) {
  EXPECT_FALSE(of({"2026-11-28T16:46:14.506Z info resuming from runs/a/checkpoints/step-00000020: step 20",
                   "step=20 loss=1.2", "", "srun: Job 5 step creation still disabled, retrying"})
                   .failed());
}

}  // namespace
}  // namespace trireme::cli::supervise_evidence_test
