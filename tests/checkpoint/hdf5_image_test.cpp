// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hdf5_image.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>

#include "support/temporary_directory.hpp"
#include "trireme/base/error.hpp"

namespace trireme::checkpoint::h5 {
namespace {

using testing::HasSubstr;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string read(const Image& file, std::uint64_t at, std::size_t size) {
  std::string text(size, '?');
  file.read(at, std::as_writable_bytes(std::span(text)));
  return text;
}

TEST(Hdf5Image, KeepsWhatWasWrittenAndHoles) {
  Image file;
  file.write(4094, bytes_of("over two pages"));
  file.write(std::uint64_t{1} << 35, bytes_of("far"));
  file.write(4096, bytes_of("ER"));
  EXPECT_EQ(file.size(), (std::uint64_t{1} << 35) + 3);
  EXPECT_EQ(read(file, 4093, 16), std::string("\0ovER two pages\0", 16));
  EXPECT_EQ(read(file, 1 << 20, 2), std::string(2, '\0'));

  const test::TemporaryDirectory directory;
  file.resize((std::uint64_t{1} << 35) + 2);
  file.write_file(directory / "copy");
  struct stat copy = {};
  ASSERT_EQ(::stat((directory / "copy").c_str(), &copy), 0);
  EXPECT_EQ(copy.st_size, (std::int64_t{1} << 35) + 2);
  EXPECT_LT(copy.st_blocks, 1024) << "holes stay holes";
  std::ifstream stream(directory / "copy", std::ios::binary);
  std::string text(16, '?');
  stream.seekg(4093).read(text.data(), 16);
  EXPECT_EQ(text, std::string("\0ovER two pages\0", 16));
  stream.seekg(std::int64_t{1} << 35).read(text.data(), 2);
  EXPECT_EQ(text.substr(0, 2), "fa");
}

// The ranks of a group lay out their file independently.
TEST(Hdf5Image, EqualCallsGiveEqualImages) {
  const Hdf5Lock lock;
  const auto lay_out = [](std::int64_t elements) {
    ImageBuilder builder;
    builder.group("model");
    const std::int64_t first = builder.reserve_floats("model/b0", elements);
    const std::int64_t second = builder.reserve_floats("model/b1", 5000);
    EXPECT_GE(second, first + 4 * elements);
    const Image image = builder.finish();
    EXPECT_GE(static_cast<std::int64_t>(image.size()), second + 20'000);
    return image.hash();
  };
  EXPECT_EQ(lay_out(std::int64_t{1} << 32), lay_out(std::int64_t{1} << 32));
  EXPECT_NE(lay_out(5000), lay_out(5001));
}

/// No more memory for this process than it has and `bytes`, while it lives.
class MemoryLimit {
 public:
  explicit MemoryLimit(std::uint64_t bytes) {
    ::getrlimit(RLIMIT_AS, &before_);
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlimit limit{.rlim_cur = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) + bytes,
                       .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_AS, &limit);
  }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;
  ~MemoryLimit() { ::setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_{};
};

// HDF5 can neither write nor forget a file whose writes fail, and crashes at the end of a run. It must not know.
TEST(Hdf5Image, ReportsWhereMemoryEndedWhenItIsWrittenToTheDisk) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer ends a program that has no more memory";
#endif
  Image file;
  const std::string large(std::size_t{256} << 20, 'x');
  {
    const MemoryLimit limit(std::uint64_t{16} << 20);
    file.write(0, bytes_of(large));
    file.write(0, bytes_of("again"));
  }
  const test::TemporaryDirectory directory;
  try {
    file.write_file(directory / "large");
    FAIL() << "written";
  } catch (const WriteError& error) {
    EXPECT_THAT(error.what(), HasSubstr("large: there is not enough memory to lay it out"));
  }
  EXPECT_TRUE(directory.names().empty());
}

}  // namespace
}  // namespace trireme::checkpoint::h5
