// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/io/file_system.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/vfs.h>

namespace trireme::io {
namespace {

using testing::HasSubstr;
constexpr std::int64_t gib = std::int64_t{1} << 30;

TEST(FileSystem, IsKnownByItsMagicNumber) {
  EXPECT_EQ(file_system(0x0BD00BD0), FileSystem::lustre);
  EXPECT_EQ(file_system(0x6969), FileSystem::nfs);
  EXPECT_EQ(file_system(0x858458f6), FileSystem::memory);
  EXPECT_EQ(file_system(0xEF53), FileSystem::local);
}

TEST(FileSystem, OfADirectoryYetToBeMadeIsItsParents) {
  struct statfs root {};
  ASSERT_EQ(::statfs("/dev/shm", &root), 0);
  EXPECT_EQ(file_system_of("/dev/shm/runs/of/tomorrow"),
            file_system(static_cast<std::int64_t>(root.f_type) & 0xffffffff));
  EXPECT_EQ(file_system_of("/no/such/directory"), file_system_of("/"));
  EXPECT_EQ(file_system_of("none"), file_system_of("."));
}

TEST(StripingHint, SpreadsLargeFilesOnLustreOnly) {
  EXPECT_THAT(striping_hint(FileSystem::lustre, "runs/c", 8, Bytes{8 * 4 * gib}),
              HasSubstr("`lfs setstripe -c 4 -S 16M runs/c`"));
  EXPECT_THAT(striping_hint(FileSystem::lustre, "c", 1, Bytes{1000 * gib}), HasSubstr("-c 16 "));
  EXPECT_EQ(striping_hint(FileSystem::lustre, "c", 64, Bytes{64 * gib}), "") << "many files are spread as they are";
  EXPECT_EQ(striping_hint(FileSystem::local, "c", 8, Bytes{1000 * gib}), "");
  EXPECT_EQ(striping_hint(FileSystem::gpfs, "c", 8, Bytes{1000 * gib}), "");
}

TEST(StripingHint, NamesNfsWhereManyWrite) {
  EXPECT_THAT(striping_hint(FileSystem::nfs, "c", 8, Bytes{gib}), HasSubstr("one server"));
  EXPECT_EQ(striping_hint(FileSystem::nfs, "c", 1, Bytes{gib}), "");
}

}  // namespace
}  // namespace trireme::io
