// SPDX-License-Identifier: Apache-2.0
//
// Groups of ranks that write one file: read by any mesh, and no rank waits for one that failed.
#include <sys/resource.h>

#include <csignal>

#include "checkpoint/save/saves.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/checkpoint/load/verify.hpp"
#include "trireme/checkpoint/save/background_save.hpp"
#include "trireme/device/allocator.hpp"

// ranks: 2 4

namespace trireme::checkpoint {
namespace {

class Groups : public Saves {
 protected:
  static void SetUpTestSuite() { device::install_allocator(); }
  Groups() { fault::set_rank(world_.rank()); }
  ~Groups() override { fault::arm(""); }

  [[nodiscard]] SaveOptions options(std::int64_t ranks_per_file) const {
    return {.directory = directory_.path(), .ranks_per_file = ranks_per_file};
  }
  [[nodiscard]] std::string path_of(std::int64_t step) const { return directory_.path() + "/" + step_name(step); }
  [[nodiscard]] std::vector<std::int64_t> steps() const {
    std::vector<std::int64_t> found;
    for (const Found& one : list_checkpoints(directory_.path())) found.push_back(one.step);
    return found;
  }
};

TEST_F(Groups, AnyMeshReadsWhatTheyWrote) {
  std::int64_t step = 10;
  for (const mesh::Mesh& writer : meshes())
    for (const std::int64_t ranks_per_file : {2, 3, 4}) {
      save_step(writer, ++step, options(ranks_per_file));
      const std::string path = path_of(step);
      if (world_.rank() == 0) {
        EXPECT_EQ(verify(path), std::vector<std::string>{}) << writer.text();
        EXPECT_EQ(files_of(path).size(), 2U + static_cast<std::size_t>(files_of(writer, ranks_per_file)));
        EXPECT_EQ(open_checkpoint(path).ranks_per_file, ranks_per_file);
      }
      for (const mesh::Mesh& reader : meshes()) expect_loads(reader, path, step);
    }
}

TEST_F(Groups, MakeTheSameFilesEachTimeAndDuringTraining) {
  const std::int64_t all = world_.size();
  save_step(whole(), 10, options(all));
  MPI_Barrier(world_.handle());
  if (world_.rank() == 0) std::filesystem::rename(path_of(10), directory_.path() + "/kept");
  MPI_Barrier(world_.handle());
  {
    BackgroundSave background(world_);
    RankShards held(whole(), world_.rank());
    held.fill(10);
    ASSERT_TRUE(background.start(held.shards(), state_at(10), options(all)));
    held.fill(-1);
    EXPECT_FALSE(background.take().failure);
  }
  const std::string name = "/" + shard_path(0);
  const auto bytes = [](const std::string& file) { return io::read_text(file, std::int64_t{1} << 30); };
  EXPECT_TRUE(bytes(directory_.path() + "/kept" + name) == bytes(path_of(10) + name));
}

TEST_F(Groups, FailTogetherWhereOneRankFails) {
  save_step(whole(), 10, options(2));
  const int last = world_.size() - 1;
  for (const std::int64_t ranks_per_file : {2, 4})
    for (const std::string point :
         {"ckpt.stage:0", "ckpt.close:0", "ckpt.write:0", "ckpt.write:1", "ckpt.sync:1", "ckpt.manifest:0"}) {
      const std::string name = point.substr(0, point.find(':'));
      const int rank = point.ends_with('1') ? last : 0;  // the first of its group or not
      fault::arm(name + ":throw:" + std::to_string(rank));
      const std::string said = message_of([&] { save_step(whole(), 20, options(ranks_per_file)); });
      fault::arm("");
      EXPECT_NE(
          said.find((rank == 0 ? "unchanged: " : "[rank " + std::to_string(rank) + "] ") + "fault injected at " + name),
          std::string::npos)
          << said;
      MPI_Barrier(world_.handle());
      EXPECT_EQ(steps(), std::vector<std::int64_t>{10});
      EXPECT_FALSE(std::filesystem::exists(directory_.path() + "/.step-00000020.partial"));
    }
  save_step(whole(), 20, options(2));
  expect_loads(whole(), path_of(20), 20);
}

TEST_F(Groups, ReportTheFileThatIsTooLarge) {
  const std::int64_t all = world_.size();
  save_step(whole(), 10, options(all));
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit limit{.rlim_cur = 20'000, .rlim_max = before.rlim_max};
  if (world_.rank() == world_.size() - 1) setrlimit(RLIMIT_FSIZE, &limit);
  const std::string said = message_of([&] { save_step(whole(), 20, options(all)); });
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_NE(said.find("ulimit -f"), std::string::npos) << said;
  expect_loads(whole(), path_of(10), 10);
}

TEST_F(Groups, RemoveNoOlderCheckpointUnlessTheNewOneReadsBack) {
  for (const std::int64_t ranks_per_file : {std::int64_t{1}, std::int64_t{world_.size()}})
    for (const int rank : {0, world_.size() - 1}) {
      SharedDirectory directory(world_);
      SaveOptions options{.directory = directory.path(), .keep = 1, .ranks_per_file = ranks_per_file};
      save_step(whole(), 10, options);
      fault::arm("ckpt.readback:nan:" + std::to_string(rank));
      const std::string said = message_of([&] { save_step(whole(), 20, options); });
      fault::arm("");
      EXPECT_NE(said.find("step-00000020/" + shard_path(ranks_per_file == 1 ? rank : 0) + ", dataset model/embedding"),
                std::string::npos)
          << said;
      MPI_Barrier(world_.handle());
      ASSERT_EQ(list_checkpoints(directory.path()).size(), 1U);
      EXPECT_EQ(list_checkpoints(directory.path()).front().step, 10);
      expect_loads(whole(), directory.path() + "/step-00000010", 10);
      save_step(whole(), 20, options);
      MPI_Barrier(world_.handle());
      EXPECT_EQ(list_checkpoints(directory.path()).front().step, 20);
    }
}

}  // namespace
}  // namespace trireme::checkpoint
