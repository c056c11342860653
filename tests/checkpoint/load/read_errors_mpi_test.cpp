// SPDX-License-Identifier: Apache-2.0
//
// Failed system calls do not count as damage: reads are tried again, then they are an error with the errno, and no file
// is renamed or removed.
#include "checkpoint/save/saves.hpp"
#include "support/failing_calls.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/checkpoint/load/verify.hpp"
#include "trireme/checkpoint/load/weights.hpp"

// ranks: 1 2

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::FailingCalls;

class ReadErrors : public Saves {
 protected:
  ReadErrors() { save(10); }
  ~ReadErrors() override { test::all_calls_work(); }

  void save(std::int64_t step) const { save_step(whole(), step, {.directory = directory_.path(), .keep = 1}); }
  [[nodiscard]] std::string path(std::int64_t step) const { return directory_.path() + "/" + step_name(step); }
  [[nodiscard]] bool last() const { return world_.rank() == world_.size() - 1; }

  /// The kind of error that `load` reports.
  [[nodiscard]] std::string load_reports(std::int64_t step) const {
    RankShards held(whole(), world_.rank());
    std::string said;
    try {
      (void)load(world_, path(step), held.shards());
      EXPECT_TRUE(held.holds(step));
    } catch (const io::ReadError& error) {
      said = std::string("unreadable: ") + error.what();
      EXPECT_EQ(error.code(), ExitCode::checkpoint);
    } catch (const CheckpointError& error) {
      said = std::string("damaged: ") + error.what();
    }
    test::all_calls_work();
    return said;
  }
  static void expect(const std::string& said, const std::string& kind, const std::string& name) {
    EXPECT_TRUE(said.starts_with(kind)) << said;
    EXPECT_NE(said.find(name), std::string::npos) << said;
  }
};

TEST_F(ReadErrors, AtALoadAreNoDamageOnAnyRank) {
  if (last()) test::failing_reads = {.path = "step-00000010/shards", .error = EIO};
  expect(load_reports(10), "unreadable", "EIO");
  if (last()) test::failing_opens = {.path = "step-00000010/shards", .error = EMFILE};
  expect(load_reports(10), "unreadable", "EMFILE");
  if (world_.rank() == 0) test::failing_opens = {.path = "COMMIT", .error = ENOMEM};
  expect(load_reports(10), "unreadable", "ENOMEM");
  if (world_.rank() == 0) test::failing_opens = {.path = "index.h5", .error = ENFILE};
  expect(load_reports(10), "unreadable", "ENFILE");
  if (world_.rank() == 0) test::failing_reads = {.path = "index.h5", .error = EIO};
  expect(load_reports(10), "unreadable", "EIO");
  if (world_.rank() == 0) test::failing_looks = {.path = "shards/dp-00000", .error = ESTALE};
  expect(load_reports(10), "unreadable", "ESTALE");
  EXPECT_EQ(load_reports(10), "");
}

TEST_F(ReadErrors, ThatPassAreTriedAgain) {
  test::failing_reads = {.path = "step-00000010", .error = EIO, .times = 3};
  EXPECT_EQ(load_reports(10), "");
  test::failing_opens = {.path = "step-00000010", .error = EMFILE, .times = 3};
  EXPECT_EQ(load_reports(10), "");
}

// A signal interrupts them on network file systems.
TEST_F(ReadErrors, OfASaveThatIsInterruptedAreNone) {
  test::failing_flushes = {.path = "step-00000020.partial", .error = EINTR, .times = 5};
  test::failing_opens = {.path = "step-00000020.partial/COMMIT", .error = EINTR, .times = 2};
  save(20);
  EXPECT_EQ(test::failing_flushes.times, 0);
  EXPECT_EQ(test::failing_opens.times, world_.rank() == 0 ? 0 : 2);
  EXPECT_EQ(load_reports(20), "");
}

TEST_F(ReadErrors, AreNoDamageWithDamageOnAnotherRank) {
  if (world_.size() == 1) GTEST_SKIP() << "needs 2 ranks";
  if (world_.rank() == 0) flip_bit(path(10) + "/" + shard_path(0), 8 * 8192);
  MPI_Barrier(world_.handle());
  if (last()) test::failing_reads = {.path = "step-00000010/shards", .error = EIO};
  expect(load_reports(10), "unreadable", "EIO");
}

TEST_F(ReadErrors, MissingFilesAreDamage) {
  MPI_Barrier(world_.handle());
  if (world_.rank() == 0) fs::remove(path(10) + "/" + shard_path(0));
  MPI_Barrier(world_.handle());
  expect(load_reports(10), "damaged", "No such file");
}

TEST_F(ReadErrors, WhenANewCheckpointIsReadBackRemoveNone) {
  for (const FailingCalls& failing : {FailingCalls{.path = "/step-00000020/shards", .error = EIO},
                                      FailingCalls{.path = "/step-00000020/index.h5", .error = EIO}}) {
    if (failing.path.ends_with("h5") ? world_.rank() == 0 : last()) test::failing_reads = failing;
    std::string said;
    try {
      save(20);
    } catch (const io::ReadError& error) {
      said = error.what();
    }
    test::all_calls_work();
    EXPECT_NE(said.find("EIO"), std::string::npos) << said;
    MPI_Barrier(world_.handle());
    EXPECT_EQ(list_checkpoints(directory_.path()).size(), 2U);
    for (const std::int64_t step : {10, 20}) expect_loads(whole(), path(step), step);
    if (world_.rank() == 0) {
      EXPECT_EQ(verify(path(20)), std::vector<std::string>{});
      fs::remove_all(path(20));
    }
    MPI_Barrier(world_.handle());
  }
  save(30);
  EXPECT_EQ(list_checkpoints(directory_.path()).size(), 1U);
}

TEST_F(ReadErrors, OfADirectoryAreNotAnEmptyDirectory) {
  test::failing_looks = {.path = directory_.path(), .error = EIO};
  EXPECT_THROW((void)list_checkpoints(directory_.path()), io::ReadError);
  test::all_calls_work();
  EXPECT_EQ(list_checkpoints(directory_.path()).size(), 1U);
}

TEST_F(ReadErrors, EndVerifyWithTheErrno) {
  if (world_.rank() != 0) return;
  test::failing_reads = {.path = "shards", .error = EIO};
  EXPECT_THROW((void)verify(path(10)), io::ReadError);
}

TEST_F(ReadErrors, OneRankOpensTheIndex) {
  MPI_Barrier(world_.handle());
  test::watched = path(10);
  test::opened.clear();
  EXPECT_EQ(load_reports(10), "");
  test::watched.clear();
  int indices = 0;
  for (const std::string& file : test::opened)
    indices += file.ends_with("index.h5") || file.ends_with("COMMIT") ? 1 : 0;
  EXPECT_EQ(indices, world_.rank() == 0 ? 2 : 0);
  EXPECT_EQ(test::opened.size() - static_cast<std::size_t>(indices), 1U) << "the shard file that this rank holds";
}

TEST_F(ReadErrors, OneRankOpensTheIndexOfWeightsToBeginWith) {
  MPI_Barrier(world_.handle());
  test::watched = path(10) + "/index.h5";
  test::opened.clear();
  const Weights weights = Weights::open(world_, path(10));
  test::watched.clear();
  EXPECT_EQ(test::opened.size(), world_.rank() == 0 ? 1U : 0U);
  EXPECT_EQ(weights.model().layers, small_model().layers);
  RankShards held(whole(), world_.rank());
  weights.check(held.model());
}

}  // namespace
}  // namespace trireme::checkpoint

// Fault, loading: reads fail (EIO, EMFILE, ENOMEM, ESTALE) -> retried for a second, then exit code 4 with the errno;
//   nothing is removed
