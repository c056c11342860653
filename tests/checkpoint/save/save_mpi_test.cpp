// SPDX-License-Identifier: Apache-2.0
//
// Saving and restoring between meshes, and saves that fail.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>

#include "checkpoint/save/saves.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/checkpoint/load/verify.hpp"

namespace trireme::checkpoint {
namespace {

TEST_F(Saves, AnyMeshReadsWhatAnyOtherWrote) {
  std::int64_t step = 10;
  for (const mesh::Mesh& writer : meshes()) {
    save_step(writer, ++step, {.directory = directory_.path()});
    const std::string path = directory_.path() + "/" + step_name(step);
    if (world_.rank() == 0) {
      EXPECT_EQ(verify(path), std::vector<std::string>{}) << writer.text();
      EXPECT_EQ(files_of(path).size(), 2U + static_cast<std::size_t>(writer.ranks()));
    }
    for (const mesh::Mesh& reader : meshes()) expect_loads(reader, path, step);
  }
}

/// A mesh, and how it saves.
struct Writer {
  mesh::Mesh mesh;
  int chunks = 1;  ///< of each pipeline rank
  std::int64_t ranks_per_file = 1;
};

TEST_F(Saves, PipelinesReadWhatAnyMeshWroteAndTheOtherWayRound) {
  config::Model sizes = small_model();
  sizes.layers = 4;
  sizes.tie_embeddings = true;  // held by the first and the last pipeline rank
  const std::vector<Writer> writers{
      {.mesh = {}},
      {.mesh = {.shard = 3}},
      {.mesh = {.replicate = 2, .shard = 2}, .ranks_per_file = 2},
      {.mesh = {.shard = 2, .tensor = 2}},
      {.mesh = {.pipeline = 2}},
      {.mesh = {.pipeline = 2}, .chunks = 2},
      {.mesh = {.pipeline = 3}},
      {.mesh = {.pipeline = 4}},
      {.mesh = {.pipeline = 2, .replicate = 2}},
      {.mesh = {.pipeline = 2, .shard = 2}, .chunks = 2, .ranks_per_file = 2},
      {.mesh = {.pipeline = 2, .replicate = 2}, .ranks_per_file = 2},
      {.mesh = {.pipeline = 2, .tensor = 2}, .chunks = 2},
  };
  std::int64_t step = 10;
  for (const Writer& writer : writers) {
    if (writer.mesh.ranks() > world_.size()) continue;
    const std::string path = directory_.path() + "/" + step_name(++step);
    on(writer.mesh, [&](const mpi::Communicator& ranks) {
      RankShards held(writer.mesh, ranks.rank(), sizes, writer.chunks);
      held.fill(step);
      (void)save(ranks, held.shards(), state_at(step),
                 {.directory = directory_.path(), .ranks_per_file = writer.ranks_per_file, .base_step = step - 1});
    });
    if (world_.rank() == 0) {
      EXPECT_EQ(verify(path), std::vector<std::string>{}) << writer.mesh.text();
      EXPECT_EQ(files_of(path).size(), 2U + static_cast<std::size_t>(files_of(writer.mesh, writer.ranks_per_file)));
    }
    for (const Writer& reader : writers) {
      if (reader.mesh.ranks() > world_.size()) continue;
      on(reader.mesh, [&](const mpi::Communicator& ranks) {
        RankShards held(reader.mesh, ranks.rank(), sizes, reader.chunks);
        EXPECT_EQ(load(ranks, path, held.shards()).mesh, writer.mesh);
        EXPECT_TRUE(held.holds(step)) << reader.mesh.text() << " of " << writer.mesh.text();
      });
    }
  }
}

TEST_F(Saves, AChangedValueOfOnePipelineRankIsFound) {
  if (world_.size() < 2) GTEST_SKIP() << "needs 2 ranks";
  config::Model sizes = small_model();
  sizes.tie_embeddings = true;
  const mesh::Mesh mesh{.pipeline = 2};
  on(mesh, [&](const mpi::Communicator& ranks) {
    RankShards held(mesh, ranks.rank(), sizes);
    held.fill(10);
    (void)save(ranks, held.shards(), state_at(10), {.directory = directory_.path(), .base_step = 9});
    // Restores other values than were saved, like memory that a load cannot trust.
    Shards shards = held.shards();
    int asked = 0;
    const auto values = shards.values;
    shards.values = [&](Quantity quantity, ParamBlock block) {
      const std::span<float> found = values(quantity, block);
      const int blocks = held.model().param_blocks();
      if (ranks.rank() == 1 && ++asked > 3 * blocks && block == ParamBlock{blocks - 1}) found.front() += 1;
      return found;
    };
    const std::string said = message_of([&] { (void)load(ranks, directory_.path() + "/" + step_name(10), shards); });
    EXPECT_NE(said.find("the values restored are not those that were saved"), std::string::npos) << said;
  });
}

TEST_F(Saves, ARankReceivesOnlyWhatItReads) {
  std::int64_t step = 10;
  for (const mesh::Mesh& mesh : {whole(), {.replicate = 1, .shard = 1, .tensor = world_.size()}}) {
    save_step(mesh, ++step, {.directory = directory_.path()});
    RankShards held(mesh, world_.rank());
    std::vector<std::string> names;
    for (const SavedFile& file : load(world_, directory_.path() + "/" + step_name(step), held.shards()).files)
      names.push_back(file.path);
    if (mesh.tensor == 1) {
      EXPECT_EQ(names, std::vector<std::string>{shard_path(world_.rank())});
    } else {
      EXPECT_THAT(names, testing::Contains(shard_path(0, world_.rank())));
    }
  }
}

TEST_F(Saves, KeepsTheNewestAndTheMilestones) {
  for (const std::int64_t step : {10, 15, 20, 25, 30, 35})
    save_step(whole(), step, {.directory = directory_.path(), .keep = 2, .keep_every = 20});
  std::vector<std::int64_t> left;
  for (const Found& found : list_checkpoints(directory_.path())) left.push_back(found.step);
  EXPECT_EQ(left, (std::vector<std::int64_t>{35, 30, 20}));
}

TEST_F(Saves, WithinSkippedStepsPushOutNoneOfBefore) {
  const auto save_of = [&](std::int64_t step, std::int64_t skipped_in_a_row, std::int64_t keep) {
    RankShards held(whole(), world_.rank());
    held.fill(step);
    State state = state_at(step);
    state.skipped_in_a_row = skipped_in_a_row;
    (void)save(world_, held.shards(), state,
               {.directory = directory_.path(), .keep = keep, .best_step = 30, .base_step = step - 1});
    MPI_Barrier(world_.handle());  // rank 0 removes old checkpoints after the other ranks have returned
    std::vector<std::int64_t> left;
    for (const Found& found : list_checkpoints(directory_.path())) left.push_back(found.step);
    MPI_Barrier(world_.handle());
    return left;
  };
  using Steps = std::vector<std::int64_t>;
  EXPECT_EQ(save_of(10, 0, 2), (Steps{10}));
  EXPECT_EQ(save_of(20, 0, 2), (Steps{20, 10}));
  EXPECT_EQ(save_of(30, 3, 1), (Steps{30, 20, 10})) << "a lower keep removes nothing now";
  EXPECT_EQ(save_of(40, 13, 1), (Steps{40, 30, 20, 10})) << "30 is the best one";
  EXPECT_EQ(save_of(50, 23, 1), (Steps{50, 30, 20, 10})) << "40 has the weights of 50";
  EXPECT_EQ(newest_without_skipped_steps(directory_.path(), 50), directory_.path() + "/" + step_name(20));
  EXPECT_EQ(newest_without_skipped_steps(directory_.path(), 10), directory_.path() + "/" + step_name(10));
  EXPECT_EQ(newest_without_skipped_steps(directory_.path(), 9), "");
  EXPECT_EQ(save_of(60, 0, 2), (Steps{60, 30, 20}));
  EXPECT_EQ(save_of(70, 0, 1), (Steps{70, 30}));
}

TEST_F(Saves, CountsOnlyWhatItsRunCommitted) {
  const auto save_of = [&](const std::string& run_id, std::int64_t step) {
    RankShards held(whole(), world_.rank());
    held.fill(step);
    State state = state_at(step);
    state.run_id = run_id;
    (void)save(world_, held.shards(), state, {.directory = directory_.path(), .keep = 2, .base_step = step - 1});
  };
  for (const std::int64_t step : {10, 20}) save_of("another run", step);
  if (world_.rank() == 0)
    for (const std::int64_t step : {25, 35})
      std::filesystem::create_directories(directory_.path() + "/" + step_name(step));
  MPI_Barrier(world_.handle());
  for (const std::int64_t step : {30, 40, 50}) save_of("this run", step);
  MPI_Barrier(world_.handle());  // rank 0 removes old checkpoints after the other ranks have returned
  std::vector<std::int64_t> left;
  for (const Found& found : list_checkpoints(directory_.path())) left.push_back(found.step);
  EXPECT_EQ(left, (std::vector<std::int64_t>{50, 40, 25, 20, 10})) << "35 is set aside: it is newer than step 39's";
  EXPECT_EQ(open_checkpoint(directory_.path() + "/" + step_name(50)).state.run_id, "this run");
}

TEST_F(Saves, SetsAnotherFutureAside) {
  save_step(whole(), 10, {.directory = directory_.path()});
  save_step(whole(), 20, {.directory = directory_.path(), .base_step = 10});
  save_step(whole(), 20, {.directory = directory_.path(), .base_step = 10});
  save_step(whole(), 15, {.directory = directory_.path(), .base_step = 10});
  EXPECT_EQ(list_checkpoints(directory_.path()).front().step, 15);
  for (const int n : {1, 2})
    EXPECT_TRUE(std::filesystem::exists(directory_.path() + "/set-aside-" + std::to_string(n) + "-step-00000020"));
}

TEST_F(Saves, AFailureOnOneRankIsEverybodysAndHarmsNothing) {
  save_step(whole(), 10, {.directory = directory_.path()});
  fault::set_rank(world_.rank());
  const int last = world_.size() - 1;
  for (const std::string point : {"ckpt.stage", "ckpt.write", "ckpt.close", "ckpt.manifest", "ckpt.rename"}) {
    const int rank = point == "ckpt.manifest" || point == "ckpt.rename" ? 0 : last;
    fault::arm(point + ":throw:" + std::to_string(rank));
    const std::string said = message_of([&] { save_step(whole(), 20, {.directory = directory_.path()}); });
    fault::arm("");
    EXPECT_NE(said.find(point), std::string::npos) << said;
    EXPECT_NE(said.find(rank == 0 ? "unchanged: " : "[rank " + std::to_string(rank) + "] "), std::string::npos) << said;
    MPI_Barrier(world_.handle());
    EXPECT_EQ(list_checkpoints(directory_.path()).size(), 1U);
    EXPECT_FALSE(std::filesystem::exists(directory_.path() + "/.step-00000020.partial"));
    expect_loads(whole(), directory_.path() + "/step-00000010", 10);
  }
  save_step(whole(), 20, {.directory = directory_.path()});
  expect_loads(whole(), directory_.path() + "/step-00000020", 20);
}

TEST_F(Saves, AFileSizeLimitEndsTheSaveWithItsReason) {
  save_step(whole(), 10, {.directory = directory_.path()});
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto size = std::filesystem::file_size(directory_.path() + "/step-00000010/" + shard_path(0));
  for (const rlim_t most : {rlim_t{2'000}, rlim_t{size / 2}, rlim_t{size - 1}}) {
    const rlimit limit{.rlim_cur = most, .rlim_max = before.rlim_max};
    if (world_.rank() == world_.size() - 1) setrlimit(RLIMIT_FSIZE, &limit);
    const std::string said = message_of([&] { save_step(whole(), 20, {.directory = directory_.path()}); });
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_NE(said.find("ulimit -f"), std::string::npos) << said;
    expect_loads(whole(), directory_.path() + "/step-00000010", 10);
  }
}

TEST_F(Saves, RefusesAnotherModelNamingTheKeys) {
  save_step(whole(), 10, {.directory = directory_.path()});
  config::Model other = small_model();
  other.vocab_size = 102;
  other.rope_theta = 5e5;
  RankShards held(whole(), world_.rank(), other);
  const std::string said = message_of([&] { (void)load(world_, directory_.path() + "/step-00000010", held.shards()); });
  EXPECT_NE(said.find("model.vocab_size: saved 101, now 102"), std::string::npos) << said;
  EXPECT_NE(said.find("model.rope_theta: saved 10000.0, now 500000.0"), std::string::npos) << said;
  EXPECT_EQ(said.find("hidden_size"), std::string::npos) << said;
}

}  // namespace
}  // namespace trireme::checkpoint

// Fault, saves: one rank's status fails at the close -> the save fails on all ranks
// Fault, loading: a manifest of thousands of ranks -> one rank parses it; every rank holds what it reads
// Fault, loading: other runs' checkpoints, unfinished saves, directories without `COMMIT` -> not counted, not removed
