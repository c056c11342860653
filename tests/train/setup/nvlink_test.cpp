// SPDX-License-Identifier: Apache-2.0
#include "train/setup/nvlink.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace trireme::train {
namespace {

using testing::ElementsAre;
using testing::EndsWith;

const std::array<std::string, 4> two_nodes{"n1/switch", "n1/switch", "n2/switch", "n2/switch"};

TEST(NvlinkLines, NamesGroupsInsideOneDomain) {
  EXPECT_THAT(nvlink_lines(mesh::Mesh{.replicate = 2, .shard = 2}, two_nodes),
              ElementsAre("2 shard groups of 2 ranks (ranks 0-1; 2-3): inside one NVLink domain each"));
  const std::array<std::string, 4> fabric{"fabric 1", "fabric 1", "fabric 1", "fabric 1"};
  EXPECT_THAT(nvlink_lines(mesh::Mesh{.shard = 4}, fabric),
              ElementsAre("1 shard group of 4 ranks (ranks 0-3): inside one NVLink domain"));
}

TEST(NvlinkLines, NamesGroupsThatSpanDomains) {
  EXPECT_THAT(
      nvlink_lines(mesh::Mesh{.shard = 4}, two_nodes),
      ElementsAre("1 shard group of 4 ranks (ranks 0-3): over 2 NVLink domains of 2 ranks each; what crosses them "
                  "takes slower links"));
  const std::array<std::string, 4> three_and_one{"a", "a", "a", ""};
  EXPECT_THAT(
      nvlink_lines(mesh::Mesh{.shard = 4}, three_and_one),
      ElementsAre("1 shard group of 4 ranks (ranks 0-3): over 2 NVLink domains of 3 + 1 ranks; what crosses them "
                  "takes slower links"));
  const std::array<std::string, 4> without{};
  EXPECT_THAT(nvlink_lines(mesh::Mesh{.replicate = 2, .shard = 2}, without),
              ElementsAre("2 shard groups of 2 ranks (ranks 0-1; 2-3): no NVLink"));
}

TEST(NvlinkLines, SeparateGroupsByPlacement) {
  const std::array<std::string, 4> last_apart{"a", "a", "a", "b"};
  EXPECT_THAT(
      nvlink_lines(mesh::Mesh{.shard = 2, .tensor = 2}, last_apart),
      ElementsAre("1 shard group of 2 ranks (ranks 1, 3): over 2 NVLink domains of 1 rank each; what crosses them "
                  "takes slower links",
                  "1 shard group of 2 ranks (ranks 0, 2): inside one NVLink domain"));
}

TEST(NvlinkLines, AreFewForManyRanks) {
  std::vector<std::string> domains(4096);
  for (std::size_t i = 0; i < domains.size(); ++i) domains[i] = std::to_string(i / 8);
  EXPECT_THAT(
      nvlink_lines(mesh::Mesh{.replicate = 512, .shard = 8}, domains),
      ElementsAre("512 shard groups of 8 ranks (ranks 0-7; 8-15; 16-23; 24-31; ...): inside one NVLink domain each"));
  EXPECT_THAT(
      nvlink_lines(mesh::Mesh{.shard = 512, .tensor = 8}, domains),
      ElementsAre(EndsWith("(ranks 0, 8, 16, 24, ...; 1, 9, 17, 25, ...; 2, 10, 18, 26, ...; 3, 11, 19, 27, ...; "
                           "...): over 512 NVLink domains of 1 rank each; what crosses them takes slower links")));
  for (std::size_t i = 0; i < domains.size(); ++i) domains[i] = std::to_string(i % 16 < i / 256 ? 0 : i);
  const std::vector<std::string> many = nvlink_lines(mesh::Mesh{.replicate = 256, .shard = 16}, domains);
  EXPECT_EQ(many.size(), 9U);
  EXPECT_THAT(many.back(), EndsWith("in 7 more ways"));
}

TEST(NvlinkLines, AreNoneWhereNothingIsGathered) {
  EXPECT_TRUE(nvlink_lines(mesh::Mesh{.replicate = 4}, two_nodes).empty());
}

}  // namespace
}  // namespace trireme::train
