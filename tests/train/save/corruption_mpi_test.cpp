// SPDX-License-Identifier: Apache-2.0
//
// 200 times the newest checkpoint is damaged at random: `verify` names the file, and the dataset where the byte belongs
// to one, and a run resumes from exact values, its or those of the previous checkpoint.
//
// labels: slow
// timeout: 900
// ranks: 2
//
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "support/jobs.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/philox.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/checkpoint/load/verify.hpp"
#include "trireme/train/run.hpp"
#include "trireme/train/save/checkpointing.hpp"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
constexpr int trials = 100;  // of each of two layouts

enum class Kind { flip, overwrite, truncate, grow, remove, other_run, other_step };
constexpr int kinds = 7;

class Corruption : public testing::Test {
 protected:
  [[nodiscard]] config::RunConfig run(const std::string& name, std::int64_t ranks_per_file, std::uint64_t seed) const {
    config::RunConfig config = test::odd_run(files_, 2);
    config.run.seed = seed;
    config.run.output = root_ + "/" + name;
    config.checkpoint.directory = config.run.output + "/checkpoints";
    config.checkpoint.every = 1;
    config.checkpoint.keep = 9;
    config.checkpoint.ranks_per_file = ranks_per_file;
    return config;
  }

  /// Step from which a run of `job` resumes, and its state then.
  struct Begun {
    std::int64_t step = 0;
    std::vector<float> values;
    friend bool operator==(const Begun&, const Begun&) = default;
  };
  [[nodiscard]] Begun begin(Job& job) const {
    Begun begun{.step = Checkpointing(job, world_, 1).begin().step, .values = {}};
    const checkpoint::Shards shards = shards_of(job);
    for (const checkpoint::Quantity quantity : checkpoint::all_quantities)
      for (int b = 0; b < job.model().param_blocks(); ++b) {
        const std::span<float> values = shards.values(quantity, ParamBlock{b});
        begun.values.insert(begun.values.end(), values.begin(), values.end());
      }
    return begun;
  }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
  test::TokenFiles files_{world_, 257};
  const test::SharedDirectory directory_{world_};
  const std::string& root_ = directory_.path();
};

/// The dataset whose values byte `at` of a shard file is part of; "" when of none.
std::string dataset_at(const checkpoint::Manifest& manifest, const std::string& file, std::int64_t at) {
  for (const checkpoint::SavedFile& saved : manifest.files)
    for (const checkpoint::SavedDataset& dataset : saved.datasets)
      for (const checkpoint::SavedSlice& slice : dataset.slices) {
        const std::int64_t first = dataset.byte_offset + 4 * slice.offset;
        if (saved.path == file && at >= first && at < first + 4 * slice.hyperslab.size()) return dataset.name;
      }
  return "";
}

/// Draws a kind of damage, applies it, and returns the text that `verify` has to print.
class Damage {
 public:
  Damage(std::uint64_t trial, std::string sound, std::string other_run, std::string other_step)
      : trial_(trial), sound_(std::move(sound)), others_{std::move(other_run), std::move(other_step)} {}

  /// To the checkpoint at `path`. Returns the file, relative to it, and the dataset or "".
  std::pair<std::string, std::string> operator()(const std::string& path) {
    const checkpoint::Manifest manifest = checkpoint::open_checkpoint(sound_);
    std::vector<std::string> names{"COMMIT", "index.h5"};
    for (const checkpoint::SavedFile& file : manifest.files) names.push_back(file.path);
    const std::string name = names[draw(names.size())];
    const std::string file = path + "/" + name;
    const std::uint64_t size = fs::file_size(file);
    const auto kind = static_cast<Kind>(trial_ % kinds);
    const std::uint64_t at = draw(size);
    switch (kind) {
      case Kind::flip: change(file, at, static_cast<char>(1 << draw(8))); break;
      case Kind::overwrite:
        for (std::uint64_t n = 1 + draw(64), i = at; i < std::min(size, at + n); ++i)
          change(file, i, static_cast<char>(1 + draw(255)));
        break;
      case Kind::truncate: fs::resize_file(file, at); break;
      case Kind::grow: fs::resize_file(file, size + 1 + draw(10'000)); break;
      case Kind::remove: fs::remove(file); break;
      case Kind::other_run:
      case Kind::other_step:
        fs::copy_file(others_[kind == Kind::other_run ? 0 : 1] + "/" + name, file,
                      fs::copy_options::overwrite_existing);
        break;
    }
    const bool in_place = kind == Kind::flip || kind == Kind::overwrite;
    return {name, in_place ? dataset_at(manifest, name, static_cast<std::int64_t>(at)) : ""};
  }

 private:
  std::uint64_t draw(std::uint64_t below) {
    return static_cast<std::uint64_t>(uniform_at(stream_key(trial_, "corruption"), n_++) * static_cast<double>(below));
  }
  static void change(const std::string& path, std::uint64_t at, char mask) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const char byte = static_cast<char>(file.get() ^ mask);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(byte);
  }

  std::uint64_t trial_, n_ = 0;
  std::string sound_;
  std::string others_[2];
};

bool names(const std::vector<std::string>& found, const std::string& what) {
  return std::any_of(found.begin(), found.end(), [&](auto& line) { return line.find(what) != std::string::npos; });
}

TEST_F(Corruption, IsNamedAndTheCheckpointBeforeIsUsed) {
  for (const std::int64_t ranks_per_file : {1, 2}) {
    const config::RunConfig config = run("run-" + std::to_string(ranks_per_file), ranks_per_file, 1234);
    const config::RunConfig stranger = run("other-" + std::to_string(ranks_per_file), ranks_per_file, 99);
    for (const config::RunConfig& one : {config, stranger}) EXPECT_EQ(run_training(one, world_), ExitCode::done);
    Job job(config, world_, {});
    const std::string newest = config.checkpoint.directory + "/step-00000002";
    const std::string before = config.checkpoint.directory + "/step-00000001";
    const std::string sound = root_ + "/sound";
    const Begun last = begin(job);
    ASSERT_EQ(last.step, 2);
    MPI_Barrier(world_.handle());
    if (world_.rank() == 0) {
      fs::remove_all(sound);
      fs::rename(newest, sound);
    }
    MPI_Barrier(world_.handle());
    const Begun first = begin(job);
    ASSERT_EQ(first.step, 1);
    int fell_back = 0, with_dataset = 0;
    for (std::uint64_t trial = 0; trial < trials; ++trial) {
      MPI_Barrier(world_.handle());
      if (world_.rank() == 0) {
        fs::copy(sound, newest, fs::copy_options::recursive);
        Damage damage(trial, sound, stranger.checkpoint.directory + "/step-00000002", before);
        const auto [file, dataset] = damage(newest);
        const std::vector<std::string> found = checkpoint::verify(newest);
        const std::string what = newest + "/" + file + (dataset.empty() ? "" : ", dataset " + dataset + ":");
        // A COMMIT of another index is reported as such, with both digests.
        EXPECT_TRUE(names(found, what)) << "trial " << trial << ", " << what << ": "
                                        << (found.empty() ? "nothing found" : found.front());
        with_dataset += dataset.empty() ? 0 : 1;
      }
      MPI_Barrier(world_.handle());
      const Begun begun = begin(job);
      EXPECT_TRUE(begun == (begun.step == 2 ? last : first)) << "trial " << trial << " went on from other values";
      fell_back += begun.step == 1 ? 1 : 0;
      MPI_Barrier(world_.handle());
      if (world_.rank() == 0) fs::remove_all(newest);
    }
    EXPECT_GT(fell_back, trials * 3 / 4) << "only what nobody reads may be damaged and used";
    if (world_.rank() == 0) {
      EXPECT_GT(with_dataset, trials / 10);
    }
  }
}

}  // namespace
}  // namespace trireme::train

// Fault, loading: flipped bits in values -> file and dataset are reported; the checkpoint before is used
