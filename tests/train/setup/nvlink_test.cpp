// SPDX-License-Identifier: Apache-2.0
#include "train/setup/nvlink.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace trireme::train {
namespace {

using testing::HasSubstr;

const std::array<std::string, 4> two_nodes{"n1/switch", "n1/switch", "n2/switch", "n2/switch"};

TEST(NvlinkText, NamesGroupsInsideOneDomain) {
  EXPECT_EQ(nvlink_text(mesh::Mesh{.replicate = 2, .shard = 2}, two_nodes),
            "each shard group of 2 ranks lies inside one NVLink domain");
}

TEST(NvlinkText, NamesGroupsThatSpanDomains) {
  EXPECT_THAT(nvlink_text(mesh::Mesh{.shard = 4}, two_nodes), HasSubstr("4 ranks span up to 2 NVLink domains"));
  const std::array<std::string, 4> without{};
  EXPECT_THAT(nvlink_text(mesh::Mesh{.replicate = 2, .shard = 2}, without), HasSubstr("span up to 2"));
  const std::array<std::string, 4> fabric{"fabric 1", "fabric 1", "fabric 1", "fabric 1"};
  EXPECT_THAT(nvlink_text(mesh::Mesh{.shard = 4}, fabric), HasSubstr("inside one"));
}

TEST(NvlinkText, LooksAtEveryGroup) {
  const std::array<std::string, 4> last_apart{"a", "a", "a", "b"};
  EXPECT_THAT(nvlink_text(mesh::Mesh{.shard = 2, .tensor = 2}, last_apart), HasSubstr("span up to 2"));
  EXPECT_THAT(nvlink_text(mesh::Mesh{.replicate = 2, .shard = 2}, last_apart), HasSubstr("span up to 2"));
}

TEST(NvlinkText, IsEmptyWhereNothingIsGathered) { EXPECT_EQ(nvlink_text(mesh::Mesh{.replicate = 4}, two_nodes), ""); }

}  // namespace
}  // namespace trireme::train
