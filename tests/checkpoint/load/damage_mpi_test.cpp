// SPDX-License-Identifier: Apache-2.0
//
// Whatever is done to the files of a checkpoint: verify names the file, loading refuses or restores exact data.
#include "checkpoint/rank_shards.hpp"
#include "trireme/base/error.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/checkpoint/load/load.hpp"
#include "trireme/checkpoint/load/verify.hpp"

// ranks: 1 4

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

class Damage : public testing::Test {
 protected:
  Damage() {
    for (const std::int64_t step : {10, 20}) {
      RankShards held(mesh(), world_.rank());
      held.fill(step);
      (void)save(world_, held.shards(), state_at(step), {.directory = directory_.path(), .base_step = step - 1});
    }
  }

  [[nodiscard]] mesh::Mesh mesh() const {
    return world_.size() == 1 ? mesh::Mesh{} : mesh::Mesh{.replicate = 2, .shard = world_.size() / 2, .tensor = 1};
  }

  /// Rank 0 changes the checkpoint; verify has to name `file`, loading to refuse or to give what was saved.
  template <class Change>
  void expect_found(const std::string& file, Change&& change, bool must_refuse = true) {
    const std::string copy = directory_.path() + "/step-00000030";
    if (world_.rank() == 0) {
      fs::copy(path(), copy, fs::copy_options::recursive);
      change(copy + "/" + file);
      const std::vector<std::string> found = verify(copy);
      bool named = false;
      for (const std::string& line : found) named |= line.find(copy + "/" + file) != std::string::npos;
      EXPECT_TRUE(named) << file << ": " << (found.empty() ? "nothing found" : found.front());
    }
    MPI_Barrier(world_.handle());
    RankShards held(mesh(), world_.rank());
    bool refused = false;
    try {
      (void)load(world_, copy, held.shards());
      EXPECT_TRUE(held.holds(20)) << file;
    } catch (const CheckpointError& error) {
      refused = true;
      EXPECT_NE(std::string(error.what()).find(copy), std::string::npos) << error.what();
    }
    if (must_refuse) {
      EXPECT_TRUE(refused) << file;
    }
    MPI_Barrier(world_.handle());
    if (world_.rank() == 0) fs::remove_all(copy);
    MPI_Barrier(world_.handle());
  }

  [[nodiscard]] std::string path() const { return directory_.path() + "/step-00000020"; }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const std::string& file : files_of(path())) names.push_back(fs::relative(file, path()).string());
    return names;
  }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
  SharedDirectory directory_{world_};
};

TEST_F(Damage, AnyFlippedBitIsFound) {
  for (const std::string& name : names()) {
    const auto bits = 8 * fs::file_size(path() + "/" + name);
    for (int trial = 0; trial < 12; ++trial) {
      const auto bit = static_cast<std::uint64_t>(uniform_at(stream_key(5, name), static_cast<std::uint64_t>(trial)) *
                                                  static_cast<double>(bits));
      expect_found(
          name, [&](const std::string& file) { flip_bit(file, bit); }, !name.starts_with("shards"));
    }
  }
}

TEST_F(Damage, AFlippedBitOfAValueIsRefusedWithItsDataset) {
  const Manifest manifest = open_checkpoint(path());
  const SavedDataset& dataset = manifest.files.back().datasets.front();
  const std::string file = path() + "/" + manifest.files.back().path;
  MPI_Barrier(world_.handle());
  if (world_.rank() == 0) {
    flip_bit(file, 8 * static_cast<std::uint64_t>(dataset.byte_offset + 4 * dataset.slices.front().offset) + 3);
    EXPECT_EQ(verify(path()).size(), 1U);
  }
  MPI_Barrier(world_.handle());
  RankShards held(mesh(), world_.rank());
  try {
    (void)load(world_, path(), held.shards());
    ADD_FAILURE() << "loaded damaged values";
  } catch (const CheckpointError& error) {
    EXPECT_NE(std::string(error.what()).find(file + ", dataset " + dataset.name), std::string::npos) << error.what();
  }
}

TEST_F(Damage, MissingTruncatedGrownAndExchangedFilesAreFound) {
  for (const std::string& name : names()) {
    expect_found(name, [](const std::string& file) { fs::remove(file); });
    for (const double share : {0.0, 0.5, 1.0}) {
      expect_found(name, [&](const std::string& file) {
        const auto size = static_cast<double>(fs::file_size(file));
        fs::resize_file(file, static_cast<std::uintmax_t>(share * (size - 1)));
      });
    }
    expect_found(name, [](const std::string& file) { fs::resize_file(file, fs::file_size(file) + 1); });
    expect_found(name, [&](const std::string& file) {  // of another step
      fs::copy_file(directory_.path() + "/step-00000010/" + name, file, fs::copy_options::overwrite_existing);
    });
  }
  if (world_.size() > 1)
    expect_found(shard_path(0), [&](const std::string& file) {  // of another rank
      fs::copy_file(path() + "/" + shard_path(1), file, fs::copy_options::overwrite_existing);
    });
}

}  // namespace
}  // namespace trireme::checkpoint

// Fault, loading: truncated, grown or missing files; files of another rank, step or run -> refused
