// SPDX-License-Identifier: Apache-2.0
//
// Thousands of damaged indices whose COMMIT fits, so that HDF5 and the manifest's reader see them: refused with a
// message, or read as they were. No crash, no hang, nothing made up.
// labels: slow
// timeout: 600
#include <fmt/format.h>

#include <array>
#include <chrono>
#include <set>

#include "checkpoint/commit.hpp"
#include "checkpoint/hdf5.hpp"
#include "checkpoint/manifest_bytes.hpp"
#include "checkpoint/rank_shards.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/checkpoint/load/load.hpp"
#include "trireme/checkpoint/load/verify.hpp"
#include "trireme/checkpoint/model_metadata.hpp"

// ranks: 1

namespace trireme::checkpoint {
namespace {

constexpr std::int64_t megabyte = std::int64_t{1} << 20;

class Fuzz : public testing::Test {
 protected:
  Fuzz() {
    RankShards held({}, 0);
    held.fill(10);
    path_ = save(world_, held.shards(), state_at(10), {.directory = directory_.path()}).path;
    sound_ = io::read_text(index_path(path_), 64 * megabyte);
    manifest_ = open_manifest_text(path_);
  }

  static std::uint64_t draw(std::uint64_t trial, std::uint64_t n, std::uint64_t below) {
    return static_cast<std::uint64_t>(uniform_at(stream_key(trial, "fuzz"), n) * static_cast<double>(below));
  }

  /// Replaces the index by `bytes`, with a COMMIT that matches it, and opens the checkpoint. Returns the error message;
  /// "" if it was read.
  std::string open(const std::string& bytes) {
    io::write_text(index_path(path_), bytes);
    const FileHash index = hash_file(index_path(path_));
    io::write_text(path_ + "/COMMIT", commit_text(2, index.bytes, index.hash));
    const auto begin = std::chrono::steady_clock::now();
    std::string said;
    try {
      EXPECT_EQ(open_manifest_text(path_), manifest_) << "other text than was written";
      (void)open_checkpoint(path_);
      (void)verify(path_);
    } catch (const CheckpointError& error) {
      said = error.what();
      EXPECT_FALSE(said.empty());
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
    return said;
  }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
  SharedDirectory directory_{world_};
  std::string path_, sound_, manifest_;
};

TEST_F(Fuzz, HeadersOfTheIndexAreRefusedOrReadAsTheyWere) {
  const std::size_t at = sound_.find(manifest_);
  ASSERT_NE(at, std::string::npos);
  int refused = 0, read = 0;
  for (std::uint64_t trial = 0; trial < 3000; ++trial) {
    std::string bytes = sound_;
    for (std::uint64_t i = 0; i <= draw(trial, 0, 6); ++i) {
      // HDF5's own bytes: around the superblock most often, never in the manifest's text.
      std::uint64_t byte =
          draw(trial, 3 * i + 1, draw(trial, 3 * i + 2, 2) == 0 ? 512 : bytes.size() - manifest_.size());
      if (byte >= at) byte += manifest_.size();
      bytes[byte] = static_cast<char>(draw(trial, 3 * i + 3, 256));
    }
    ++(open(bytes).empty() ? read : refused);
  }
  EXPECT_GT(refused, 300);
  EXPECT_GT(read, 0) << "what no reader needs may change";
}

/// The manifest is correct but stored in another file, which COMMIT's hash does not cover.
TEST_F(Fuzz, ManifestsOutsideTheirFileAreRefused) {
  const h5::Hdf5Lock lock;
  const std::string index = path_ + "/other.h5", outside = directory_.path() + "/outside", other = outside + ".h5";
  io::write_text(outside, manifest_);
  const hsize_t size = manifest_.size();
  const h5::Space space(H5Screate_simple(1, &size, nullptr));
  const auto with_dataset = [&](const std::string& path, const char* name, hid_t creation) {
    const h5::File file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
    const h5::Dataset dataset(
        H5Dcreate2(file.id(), name, H5T_STD_U8LE, space.id(), H5P_DEFAULT, creation, H5P_DEFAULT));
    ASSERT_GE(dataset.id(), 0);
    if (creation == H5P_DEFAULT) {
      ASSERT_GE(H5Dwrite(dataset.id(), H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, manifest_.data()), 0);
    }
  };
  const auto with_link = [&](auto&& link) {
    const h5::File file(H5Fopen(index.c_str(), H5F_ACC_RDWR, H5P_DEFAULT));
    ASSERT_GE(link(file.id()), 0);
  };
  const auto refused = [&](const std::string& what) {
    const std::string said = [&] {
      const std::string image = io::read_text(index, 64 * megabyte);
      try {
        return "read: " + h5::read_bytes(image, index, "manifest").substr(0, 20);
      } catch (const CheckpointError& error) {
        return std::string(error.what());
      }
    }();
    EXPECT_NE(said.find(what + ", but a checkpoint's data lie in its own files"), std::string::npos) << said;
  };
  const h5::Properties external(H5Pcreate(H5P_DATASET_CREATE));
  ASSERT_GE(H5Pset_external(external.id(), outside.c_str(), 0, size), 0);
  with_dataset(index, "manifest", external.id());
  refused("is stored in another file");
  with_dataset(other, "there", H5P_DEFAULT);
  const h5::Properties view(H5Pcreate(H5P_DATASET_CREATE));
  ASSERT_GE(H5Pset_virtual(view.id(), space.id(), other.c_str(), "there", space.id()), 0);
  with_dataset(index, "manifest", view.id());
  refused("is a virtual dataset");
  with_dataset(index, "there", H5P_DEFAULT);
  with_link([](hid_t file) { return H5Lcreate_soft("/there", file, "manifest", H5P_DEFAULT, H5P_DEFAULT); });
  refused("is a soft link");
  with_dataset(index, "there", H5P_DEFAULT);
  with_link([&](hid_t file) {
    return H5Lcreate_external(other.c_str(), "/there", file, "manifest", H5P_DEFAULT, H5P_DEFAULT);
  });
  refused("is a link to another file");
  with_dataset(index, "manifest", H5P_DEFAULT);
  EXPECT_EQ(h5::read_bytes(io::read_text(index, 64 * megabyte), index, "manifest"), manifest_);
}

TEST_F(Fuzz, CutAndGrownIndicesAreRefusedOrReadAsTheyWere) {
  for (std::uint64_t trial = 0; trial < 500; ++trial) {
    std::string bytes = sound_;
    bytes.resize(draw(trial, 0, 2 * sound_.size()), static_cast<char>(trial));
    (void)open(bytes);
  }
}

TEST_F(Fuzz, ManifestsAreRefusedOrDescribeEveryElementOnce) {
  int refused = 0;
  for (std::uint64_t trial = 0; trial < 20'000; ++trial) {
    std::string text = manifest_;
    for (std::uint64_t i = 0; i <= draw(trial, 0, 3); ++i) {
      const std::uint64_t byte = draw(trial, 3 * i + 1, text.size());
      // Digits become other digits, so that many stay JSON.
      if (text[byte] >= '0' && text[byte] <= '9')
        text[byte] = static_cast<char>('0' + draw(trial, 3 * i + 2, 10));
      else
        text[byte] = static_cast<char>(draw(trial, 3 * i + 2, 128));
    }
    try {
      const Manifest manifest = parse_manifest("index.h5", text);
      for (const SavedFile& file : manifest.files)
        for (const SavedDataset& dataset : file.datasets)
          EXPECT_LE(dataset.byte_offset + 4 * dataset.elements, file.bytes);
    } catch (const CheckpointError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

/// Extreme values: numbers just inside and outside of integer ranges, and others that no counter can hold.
constexpr std::array<const char*, 16> extremes{"0",
                                               "-1",
                                               "1",
                                               "2147483647",
                                               "2147483648",
                                               "4294967295",
                                               "4294967297",
                                               "1048576",
                                               "9007199254740992",
                                               "9007199254740993",
                                               "4611686018427387904",
                                               "9223372036854775807",
                                               "9223372036854775808",
                                               "18446744073709551615",
                                               "1e300",
                                               "-9223372036854775808"};

TEST_F(Fuzz, ManifestsWithExtremeNumbersOverflowNowhere) {
  std::vector<std::pair<std::size_t, std::size_t>> numbers;  // where they begin, and how long they are
  for (std::size_t at = 0; at < manifest_.size();) {
    const std::size_t begin = manifest_.find_first_of("0123456789", at);
    if (begin == std::string::npos) break;
    at = std::min(manifest_.find_first_not_of("0123456789", begin), manifest_.size());
    numbers.emplace_back(begin, at - begin);
  }
  int refused = 0, built = 0;
  for (std::uint64_t trial = 0; trial < 10'000; ++trial) {
    std::string text = manifest_;
    // From the back, so that those before stay where they are; near the front, if there are more kinds of them.
    std::set<std::uint64_t, std::greater<>> which;
    for (std::uint64_t i = 0; i <= draw(trial, 0, 3); ++i)
      which.insert(draw(trial, 3 * i + 1, draw(trial, 3 * i + 2, 2) == 0 ? 100 : numbers.size()));
    for (const std::uint64_t i : which)
      text.replace(numbers[i].first, numbers[i].second, extremes[draw(trial, 1000 + i, extremes.size())]);
    try {
      const Manifest manifest = parse_manifest("index.h5", text);
      const std::string bytes = encode(manifest);
      EXPECT_EQ(encode(decode(bytes)), bytes);
      EXPECT_EQ(manifest.digests.size(), static_cast<std::size_t>(std::int64_t{manifest.mesh.replicate} *
                                                                  manifest.mesh.shard * manifest.mesh.tensor));
      const model::Model model = model::build(model_of("index.h5", manifest));
      ++built;
      check_model("index.h5", manifest, model);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(built, 100);
}

}  // namespace
}  // namespace trireme::checkpoint

// Fault, loading: damaged index header -> error or exact data; no crash or hang
// Fault, loading: the manifest is a link, virtual dataset, or in another file -> exit code 4
