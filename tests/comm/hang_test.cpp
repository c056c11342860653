// SPDX-License-Identifier: Apache-2.0
//
// Whole jobs that end badly. Each is this executable again, under mpirun, with a disabled test as the job's main
// function.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <string>
#include <thread>

#include "support/temporary_directory.hpp"
#include "trireme/comm/collectives.hpp"
#include "trireme/comm/groups.hpp"
#include "trireme/mpi/abort.hpp"
#include "trireme/mpi/flight.hpp"
#include "trireme/mpi/gather.hpp"
#include "trireme/mpi/session.hpp"
#include "trireme/mpi/topology.hpp"
#include "trireme/supervise/watchdog.hpp"

namespace trireme::comm {
namespace {

using mesh::Group;
using schedule::Lane;
using testing::HasSubstr;

struct Ending {
  int status;
  std::string output;
  double seconds;
};

std::string variable(const char* name, const char* otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? text : otherwise;
}

constexpr const char* directory_variable = "TRIREME_HANG_TEST_DIRECTORY";

/// `directory`: where the job leaves its reports.
Ending run_job(const std::string& job, int ranks, const std::string& directory = "/tmp") {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command =
      std::string(directory_variable) + "=" + directory + " " + variable("MPIEXEC", "mpirun") + " " +
      variable("MPIEXEC_FLAGS", "--oversubscribe --bind-to none") + " -n " + std::to_string(ranks) + " " + self +
      " --gtest_brief=1 --gtest_catch_exceptions=0 --gtest_also_run_disabled_tests --gtest_filter=Job.DISABLED_" + job +
      " 2>&1";
  const auto began = std::chrono::steady_clock::now();
  FILE* pipe = ::popen(command.c_str(), "r");
  Ending ending{};
  std::array<char, 4096> text{};
  while (std::fgets(text.data(), static_cast<int>(text.size()), pipe) != nullptr) ending.output += text.data();
  ending.status = WEXITSTATUS(::pclose(pipe));
  ending.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return ending;
}

/// Longer than delays on a busy machine, before the rank that stops, and before its report.
constexpr double timeout_seconds = 6;
/// Upper bound where only a hang takes long.
constexpr double soon_seconds = 60;

std::string dump_path(const std::string& directory, int rank) {
  return directory + "/rank" + std::to_string(rank) + ".json";
}
std::string dump_path(int rank) { return dump_path(variable(directory_variable, "/tmp"), rank); }

// Rank 1 stops before its third all-gather.
void all_gather_until_a_rank_stops(TransportChoice choice) {
  const mpi::Session session(nullptr, nullptr);
  mpi::FlightRecorder recorder;
  const auto collectives = make_collectives(
      session.world(), Group::shard, Lane::gather,
      {.recorder = &recorder,
       .deadline = {.timeout_seconds = timeout_seconds, .dump_path = dump_path(session.world().rank())}},
      choice);
  std::vector<float> whole(static_cast<std::size_t>(300'000 * collectives->size()));
  for (int i = 0; i < 10; ++i) {
    if (i == 2 && collectives->rank() == 1) ::raise(SIGSTOP);
    collectives->all_gather(whole.data() + 300'000 * collectives->rank(), whole.data(), 300'000, DType::fp32);
  }
}

TEST(Job, DISABLED_StopsARankOverMpi) { all_gather_until_a_rank_stops(TransportChoice::mpi); }
TEST(Job, DISABLED_StopsARankOverSharedMemory) { all_gather_until_a_rank_stops(TransportChoice::shared_memory); }

TEST(Job, DISABLED_HangsInsideMpi) {
  const mpi::Session session(nullptr, nullptr);
  mpi::FlightRecorder recorder;
  supervise::Watchdog watchdog({.timeout_seconds = timeout_seconds}, &recorder);
  watchdog.mark("create the groups", 0);
  if (session.world().rank() == 0) std::this_thread::sleep_for(std::chrono::hours(1));
  Groups groups(session.world(), {.shard = session.world().size()});
  groups.add(Group::shard, Lane::gather, session.world().size());
}

TEST(Job, DISABLED_ThrowsOnOneRank) {
  const mpi::Session session(nullptr, nullptr);
  try {
    if (session.world().rank() == 1) throw DataError("tokens.bin:\nends early.\n\nfile   tokens\na.bin      12");
    const mpi::Communicator never = session.world().duplicate();
  } catch (...) {
    mpi::abort_job_for_current_exception();
  }
}

TEST(Job, DISABLED_ThrowsOnAllRanks) {
  const mpi::Session session(nullptr, nullptr);
  mpi::abort_job(ExitCode::data, "The token is beyond the vocabulary.");
}

TEST(Job, DISABLED_AbortsFromManyThreads) {
  const mpi::Session session(nullptr, nullptr);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([] { mpi::abort_job(ExitCode::write, "The disk is full."); });
}

TEST(Job, DISABLED_UnwindsTheSession) {
  try {
    const mpi::Session session(nullptr, nullptr);
    const mpi::Communicator copy = session.world().duplicate();
    if (session.world().rank() == 0) throw std::runtime_error("unexpected");
    mpi::check(MPI_Barrier(copy.handle()), "wait for rank 0");
  } catch (const std::runtime_error&) {
    // Not reached: the others would wait in MPI_Finalize.
  }
}

TEST(Job, DISABLED_ThrowsOnALane) {
  const mpi::Session session(nullptr, nullptr);
  std::jthread lane;
  if (session.world().rank() == 1) lane = std::jthread([] { throw NumericsError("The loss is not finite."); });
  mpi::check(MPI_Barrier(session.world().handle()), "wait");
  const mpi::Communicator never = session.world().duplicate();
  std::this_thread::sleep_for(std::chrono::hours(1));
}

// Rank 1 is stuck in something that is no collective; the others wait for its word, on a communicator made from the one
// with the deadline.
TEST(Job, DISABLED_WaitsForAFlag) {
  const mpi::Session session(nullptr, nullptr);
  mpi::Communicator world = session.world().duplicate();
  world.set_deadline({.timeout_seconds = timeout_seconds, .dump_path = dump_path(world.rank())});
  const mpi::Communicator copy = world.duplicate().split(0, world.rank());
  if (world.rank() == 1) ::raise(SIGSTOP);
  mpi::doing("saving a checkpoint, step 3");
  static_cast<void>(mpi::any_rank(copy, false));
}

/// Jobs that end at their timeout, which all wait for at the same time.
class StoppedRank : public testing::Test {
 protected:
  struct Hanging {
    trireme::test::TemporaryDirectory directory;
    std::future<Ending> ending;
    Hanging(const char* job, int ranks)
        : ending(std::async(std::launch::async, [=, this] { return run_job(job, ranks, directory.path()); })) {}
    [[nodiscard]] bool reported(int rank) const { return std::filesystem::exists(dump_path(directory.path(), rank)); }
  };
  struct Jobs {
    Hanging over_mpi{"StopsARankOverMpi", 3}, over_shared_memory{"StopsARankOverSharedMemory", 3},
        of_a_flag{"WaitsForAFlag", 2}, inside_mpi{"HangsInsideMpi", 2};
  };
  static void SetUpTestSuite() { jobs_ = new Jobs; }
  static void TearDownTestSuite() { delete jobs_; }

  static void expect_named(Hanging& job) {
    const Ending ending = job.ending.get();
    EXPECT_EQ(ending.status, static_cast<int>(ExitCode::hang)) << ending.output;
    EXPECT_THAT(ending.output, HasSubstr("all_gather #3"));
    EXPECT_THAT(ending.output, HasSubstr("shard/gather still waits for rank 1 on " + mpi::hostname() + " after"));
    EXPECT_THAT(ending.output, HasSubstr("comm.timeout_seconds"));
    EXPECT_LT(ending.seconds, timeout_seconds + soon_seconds);
    for (const int rank : {0, 2}) EXPECT_TRUE(job.reported(rank)) << rank;
  }
  static inline Jobs* jobs_ = nullptr;
};

TEST_F(StoppedRank, EndsTheJobWithSevenAndIsNamedOverMpi) { expect_named(jobs_->over_mpi); }
TEST_F(StoppedRank, EndsTheJobWithSevenAndIsNamedOverSharedMemory) { expect_named(jobs_->over_shared_memory); }

TEST_F(StoppedRank, EndsTheJobWhereOthersWaitForItsWord) {
  const Ending ending = jobs_->of_a_flag.ending.get();
  EXPECT_EQ(ending.status, static_cast<int>(ExitCode::hang)) << ending.output;
  EXPECT_THAT(ending.output, HasSubstr("for the others to agree on a flag (saving a checkpoint, step 3)"));
  EXPECT_TRUE(jobs_->of_a_flag.reported(0));
}

TEST_F(StoppedRank, IsFoundByTheWatchdogWhereTheOthersAreInsideMpi) {
  const Ending ending = jobs_->inside_mpi.ending.get();
  EXPECT_EQ(ending.status, static_cast<int>(ExitCode::hang)) << ending.output;
  EXPECT_THAT(ending.output, HasSubstr("create the groups"));
}

TEST(ThrowingRank, EndsTheJobWithItsMessageAndItsCode) {
  const Ending ending = run_job("ThrowsOnOneRank", 3);
  EXPECT_EQ(ending.status, static_cast<int>(ExitCode::data)) << ending.output;
  EXPECT_THAT(ending.output, HasSubstr("[rank 1 "));
  EXPECT_THAT(ending.output, HasSubstr("error: tokens.bin:\nends early.\n"));
  EXPECT_THAT(ending.output, HasSubstr("file   tokens\na.bin      12\n[rank 1 ")) << "a table, above the line";
  EXPECT_LT(ending.seconds, soon_seconds);
}

TEST(AbortJob, SpeaksOnceWhenManyThreadsCallIt) {
  const Ending ending = run_job("AbortsFromManyThreads", 1);
  EXPECT_EQ(ending.status, static_cast<int>(ExitCode::write)) << ending.output;
  const std::size_t first = ending.output.find("The disk is full.");
  ASSERT_NE(first, std::string::npos) << ending.output;
  EXPECT_EQ(ending.output.find("The disk is full.", first + 1), std::string::npos) << ending.output;
}

TEST(AbortJob, SpeaksOnceWhenTheRanksOfANodeFailTogether) {
  const Ending ending = run_job("ThrowsOnAllRanks", 4);
  EXPECT_EQ(ending.status, static_cast<int>(ExitCode::data)) << ending.output;
  const std::size_t first = ending.output.find("beyond the vocabulary");
  ASSERT_NE(first, std::string::npos) << ending.output;
  EXPECT_EQ(ending.output.find("beyond the vocabulary", first + 1), std::string::npos) << ending.output;
}

TEST(Session, EndsTheJobWhenAnExceptionUnwindsIt) {
  const Ending ending = run_job("UnwindsTheSession", 2);
  EXPECT_EQ(ending.status, static_cast<int>(ExitCode::bug)) << ending.output;
  EXPECT_LT(ending.seconds, soon_seconds);
}

TEST(Session, EndsTheJobWithTheMessageOfAnExceptionOnAnyThread) {
  const Ending ending = run_job("ThrowsOnALane", 2);
  EXPECT_EQ(ending.status, static_cast<int>(ExitCode::numerics)) << ending.output;
  EXPECT_THAT(ending.output, HasSubstr("The loss is not finite."));
}

}  // namespace
}  // namespace trireme::comm
