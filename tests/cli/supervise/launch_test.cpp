// SPDX-License-Identifier: Apache-2.0
#include "cli/supervise/launch.hpp"

#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/base/text.hpp"

namespace trireme::cli::supervise_launch_test {
namespace {

const Allocation three{.nodes = {"n1", "n2", "n3"}, .ranks_per_node = 2};

TEST(LaunchCommand, AddsNodesBehindTheUsersOptions) {
  const LaunchCommand srun =
      parse_launch({"srun", "--mpi=pmix", "trireme", "train", "run.toml", "--set", "run.name=a b"});
  EXPECT_EQ(
      join(train_command(srun, three, {"n1", "n3"}, ""), "|"),
      "srun|--mpi=pmix|--nodes=2|--ntasks=4|--ntasks-per-node=2|--overlap|--no-kill|--exclude=n2|--|trireme|train|"
      "run.toml|--set|run.name=a b");
  EXPECT_EQ(join(train_command(srun, three, three.nodes, ""), " ").find("--exclude"), std::string::npos);
  const LaunchCommand mpirun = parse_launch({"/opt/bin/mpirun", "--bind-to", "none", "trireme", "train", "run.toml"});
  EXPECT_EQ(join(train_command(mpirun, three, {"n1", "n3"}, "h"), " "),
            "/opt/bin/mpirun --bind-to none -np 4 --hostfile h -x TRIREME_LIFE -x TRIREME_REPLACE_STRAGGLERS trireme "
            "train run.toml");
}

TEST(LaunchCommand, ChecksEachNodeOnce) {
  const LaunchCommand srun =
      parse_launch({"srun", "--mpi=pmix", "--", "apptainer", "run", "t.sif", "train", "run.toml"});
  EXPECT_EQ(
      join(check_command(srun, three, {"n3"}, "", {"--report", "d"}), " "),
      "srun --nodes=1 --ntasks=1 --ntasks-per-node=1 --overlap --no-kill --exclude=n1,n2 --cpus-per-task=1 --mem=0 "
      "--mpi=none --kill-on-bad-exit=0 --wait=5 --quiet -- apptainer run t.sif doctor --node --report d");
  const LaunchCommand mpirun = parse_launch({"mpirun", "--bind-to", "none", "trireme", "train", "run.toml"});
  EXPECT_EQ(join(check_command(mpirun, three, {"n3"}, "h", {"--report", "d"}), " "),
            "mpirun --bind-to none -np 1 --hostfile h trireme doctor --node --report d");
}

TEST(LaunchCommand, RefusesWhatItCannotRestart) {
  for (const Words& words :
       {Words{}, Words{"srun"}, Words{"train"}, Words{"srun", "train"}, Words{"bash", "trireme", "train"},
        Words{"srun", "trireme", "evaluate", "x"}, Words{"srun", "-n", "4", "trireme", "train", "x"},
        Words{"srun", "--nodes=4", "trireme", "train", "x"}, Words{"srun", "--", "train", "x"},
        Words{"mpirun", "-np", "4", "trireme", "train", "x"}})
    EXPECT_THROW((void)parse_launch(words), ConfigError) << join(words, " ");
}

TEST(HostFile, HasHostsOfEqualSlots) {
  const Allocation found = parse_host_file("# hosts\na slots=2\n\n  b slots=2 # spare\n", "hosts");
  EXPECT_EQ(found.nodes, (Words{"a", "b"}));
  EXPECT_EQ(found.ranks_per_node, 2);
  EXPECT_EQ(host_file(found.nodes, found.ranks_per_node), "a slots=2\nb slots=2\n");
  EXPECT_EQ(parse_host_file("a\n", "hosts").ranks_per_node, 1);
  for (const char* text :
       {"", "# a\n", "a slots=2\nb slots=3\n", "a slots=2\na slots=2\n", "a slots=0\n", "a:2 max_slots=3\n"})
    EXPECT_THROW((void)parse_host_file(text, "hosts"), ConfigError) << text;
}

TEST(SlurmJob, GivesTheRanksOfANode) {
  const auto job = [](std::string tasks, std::string each) {
    return [=](std::string_view name) {
      return name == "SLURM_NTASKS" ? tasks : name == "SLURM_NTASKS_PER_NODE" ? each : std::string();
    };
  };
  EXPECT_EQ(ranks_per_node(job("6", "2"), 3), 2);
  EXPECT_EQ(ranks_per_node(job("6", ""), 3), 2);
  EXPECT_THROW((void)ranks_per_node(job("7", ""), 3), EnvironmentError);
  EXPECT_THROW((void)ranks_per_node(job("", ""), 3), EnvironmentError);
}

}  // namespace
}  // namespace trireme::cli::supervise_launch_test
