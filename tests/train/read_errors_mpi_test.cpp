// SPDX-License-Identifier: Apache-2.0
//
// A run whose newest checkpoint cannot be read stops: it does not fall back, and sets nothing aside. A run that another
// one's checkpoints begin leaves them where they are.
//
// ranks: 2
//
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "support/failing_calls.hpp"
#include "support/jobs.hpp"
#include "train/setup/gemm.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/data/token_file.hpp"
#include "trireme/train/run.hpp"
#include "trireme/train/save/checkpointing.hpp"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

class Resume : public testing::Test {
 protected:
  [[nodiscard]] config::RunConfig run(const std::string& name, std::int64_t steps) const {
    config::RunConfig config = test::odd_run(files_, static_cast<int>(steps));
    config.run.output = root_ + "/" + name;
    config.checkpoint.directory = root_ + "/checkpoints";
    config.checkpoint.every = 1;
    return config;
  }
  void train(const config::RunConfig& config) const {
    EXPECT_EQ(run_training(config, world_), ExitCode::done);
    MPI_Barrier(world_.handle());
  }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(root_ + "/checkpoints"))
      if (entry.path().filename() != ".job.lock") names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    MPI_Barrier(world_.handle());
    return names;
  }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
  test::TokenFiles files_{world_, 257};
  const test::SharedDirectory directory_{world_};
  const std::string& root_ = directory_.path();
};

TEST_F(Resume, StopsWhereTheNewestCannotBeReadAndResumesFromItLater) {
  config::RunConfig config = run("run", 2);
  train(config);
  config.train.steps = 3;
  for (const int rank : {0, 1}) {
    if (world_.rank() == rank) test::failing_reads = {.path = "step-00000002/shards", .error = EIO};
    Job job(config, world_, {});
    Checkpointing checkpoints(job, world_, 1);
    EXPECT_THROW((void)checkpoints.begin(), io::ReadError);
    test::all_calls_work();
  }
  EXPECT_EQ(names(), (std::vector<std::string>{"step-00000001", "step-00000002"}));
  train(config);
  EXPECT_EQ(names(), (std::vector<std::string>{"step-00000002", "step-00000003"}));
}

TEST_F(Resume, InAnotherRunsDirectoryDeletesNoneOfIts) {
  config::RunConfig first = run("first", 4);
  first.checkpoint.keep = 9;
  train(first);
  config::RunConfig second = run("second", 7);
  second.checkpoint.keep = 1;
  second.checkpoint.resume = second.checkpoint.directory + "/step-00000003";
  if (world_.rank() == 0) fs::create_directories(root_ + "/checkpoints/step-00000002x");
  train(second);
  EXPECT_EQ(names(), (std::vector<std::string>{"set-aside-1-step-00000004", "step-00000001", "step-00000002",
                                               "step-00000002x", "step-00000003", "step-00000007"}));
  second.train.steps = 8;  // its own, by the same command line: it removes the one before
  second.checkpoint.resume = "auto";
  train(second);
  EXPECT_EQ(names().back(), "step-00000008");
  EXPECT_EQ(names().size(), 6U);
}

TEST_F(Resume, OfARunThatDoesNotSaveRemovesNoSaveThatIsUnderWay) {
  train(run("first", 2));
  config::RunConfig looks_on = run("second", 2);
  looks_on.checkpoint.every = 0;
  looks_on.checkpoint.at_end = false;
  if (world_.rank() == 0)
    for (const char* name : {".step-00000003.partial", ".step-00000001.removed"})
      fs::create_directories(root_ + "/checkpoints/" + name);
  MPI_Barrier(world_.handle());
  train(looks_on);
  EXPECT_EQ(names().size(), 4U) << "the first run's save, and its removal, are its own";
  train(run("first", 3));
  EXPECT_EQ(names(), (std::vector<std::string>{"step-00000002", "step-00000003"}));
}

// An index that one rank overlooks makes other tokens of the same file there: that is an error, too.
TEST_F(Resume, OrAnyRunTriesTokensAgainThatCannotBeRead) {
  config::RunConfig config = run("passes", 2);
  config.checkpoint.every = 0;
  const std::string tokens = files_.sources().front().path;
  if (world_.rank() == 1) test::failing_reads = {.path = tokens, .error = EIO, .times = 3};
  train(config);
  EXPECT_EQ(test::failing_reads.times, world_.rank() == 1 ? 0 : -1);
  test::all_calls_work();
  const std::string index = tokens.substr(0, tokens.size() - 4) + ".idx";
  for (const auto& [failing, path] :
       {std::pair(&test::failing_opens, tokens), {&test::failing_reads, tokens}, {&test::failing_looks, index}}) {
    *failing = {.path = path, .error = ESTALE};
    std::string said;
    try {
      (void)data::TokenFile(tokens, config::TokenFormat::automatic, 257);
    } catch (const DataError& error) {
      said = error.what();
    }
    test::all_calls_work();
    EXPECT_NE(said.find("Stale file handle"), std::string::npos) << said;
  }
}

TEST_F(Resume, KeepsMeasurementsWithoutTouchingAnotherJobsFile) {
  setenv("TRIREME_CACHE", (root_ + "/cache").c_str(), 1);
  const std::string path = gemm_choice_path();
  if (world_.rank() == 0) {
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path + ".partial") << "another job's";
    (void)agree_on_gemm(mpi::Communicator::from(MPI_COMM_SELF));
    EXPECT_TRUE(fs::exists(path));
    EXPECT_EQ(io::read_text(path + ".partial", 100), "another job's");
  }
  unsetenv("TRIREME_CACHE");
  MPI_Barrier(world_.handle());
}

}  // namespace
}  // namespace trireme::train

// Fault, data: unreadable token files or Megatron index -> retried for a second, then exit code 3 with the errno
