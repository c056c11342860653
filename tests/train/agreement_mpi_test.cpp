// SPDX-License-Identifier: Apache-2.0
//
// A rank of another build, or with another view of the mesh, is named before anything is trained. What is measured is
// kept for the next job, without harm to the file of one that does the same.
//
// ranks: 2 3
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>

#include "support/shared_directory.hpp"
#include "train/engine/agreement.hpp"
#include "train/setup/gemm.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/mpi/collective_try.hpp"

namespace trireme::train {
namespace {

using testing::HasSubstr;

class Agreement : public testing::Test {
 protected:
  /// Error messages of the ranks with `fault` active; ranks are shards.
  [[nodiscard]] std::string said(const std::string& fault) const {
    const mesh::Mesh mesh{.shard = world_.size()};
    fault::set_rank(world_.rank());
    fault::arm(fault);
    std::string message;
    try {
      agree_on_build_and_places(world_, mesh, DpRank{world_.rank()});
    } catch (const mpi::CollectiveError& error) {
      message = fmt::format("{} {}", static_cast<int>(error.code()), error.what());
    } catch (const EnvironmentError& error) {
      message = std::string("5 ") + error.what();
    }
    fault::arm("");
    fault::set_rank(-1);
    return message;
  }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
};

TEST_F(Agreement, IsSilentWhereAllAreAlike) { EXPECT_EQ(said(""), ""); }

TEST_F(Agreement, NamesTheRankOfAnotherBuild) {
  const std::string message = said("start.build:nan:1");
  EXPECT_THAT(message, testing::StartsWith("2 The ranks do not agree on the build: rank 1 differs"));
  EXPECT_THAT(message, testing::ContainsRegex("rank 1 has `git [^`]*-another`"));
}

TEST_F(Agreement, NamesTheRankThatWorksInAnothersPlace) {
  const std::string message = said("start.dp_rank:nan:1");
  EXPECT_THAT(message, testing::StartsWith("5 rank 1 works as dp rank 0 instead of 1"));
}

TEST(Misplaced, ListsEveryRankThatIs) {
  const mesh::Mesh mesh{.replicate = 2, .shard = 1, .tensor = 2};
  EXPECT_EQ(misplaced(mesh, {0, 0, 1, 1}), "");
  EXPECT_EQ(misplaced(mesh, {0, 1, 1, 0}),
            "rank 1 works as dp rank 1 instead of 0, rank 3 works as dp rank 0 instead of 1");
}

/// TRIREME_CACHE while it lives.
class CacheDirectory {
 public:
  explicit CacheDirectory(const std::string& directory) {
    if (const char* now = std::getenv("TRIREME_CACHE")) before_ = now;
    ::setenv("TRIREME_CACHE", directory.c_str(), 1);
  }
  CacheDirectory(const CacheDirectory&) = delete;
  CacheDirectory& operator=(const CacheDirectory&) = delete;
  ~CacheDirectory() { before_ ? ::setenv("TRIREME_CACHE", before_->c_str(), 1) : ::unsetenv("TRIREME_CACHE"); }

 private:
  std::optional<std::string> before_;
};

TEST(MeasuredGemm, IsKeptWithTheFilesOfOtherJobs) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  const test::SharedDirectory directory(world);
  const CacheDirectory cache(directory.path());
  const std::string path = gemm_choice_path();
  const std::string others = path + ".partial";  // what a job on another node has open
  if (world.rank() == 0) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    io::replace_text(others, "of another job");
  }
  MPI_Barrier(world.handle());
  const mpi::Communicator alone = world.split(world.rank(), 0);  // a job each, at the same time
  (void)agree_on_gemm(alone);
  MPI_Barrier(world.handle());
  EXPECT_EQ(io::read_text(others, 100), "of another job");
  std::string kept = io::read_text(path, 1000);
  ASSERT_TRUE(kept.ends_with('\n'));
  kept.pop_back();
  EXPECT_NO_THROW((void)kernels::parse_gemm_choice(kept));
  const auto files = std::filesystem::directory_iterator(std::filesystem::path(path).parent_path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 2) << "nothing else is left";
  MPI_Barrier(world.handle());

  if (world.rank() == 0) io::replace_text(path, "fp32=at,at");  // cut off
  MPI_Barrier(world.handle());
  EXPECT_NO_THROW((void)agree_on_gemm(world)) << "measured again";
}

}  // namespace
}  // namespace trireme::train

// Fault, start: a rank of another build, or with another dp rank -> exit code 2 or 5 with the rank
// Fault, start: two jobs measure matrix products for one cache -> each file is whole
