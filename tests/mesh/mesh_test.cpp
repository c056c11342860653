// SPDX-License-Identifier: Apache-2.0
#include "trireme/mesh/mesh.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "trireme/base/error.hpp"
#include "trireme/mesh/groups.hpp"

namespace trireme::mesh {
namespace {

constexpr int most_ranks = 64;

/// Every mesh of up to `most_ranks` ranks.
std::vector<Mesh> all_meshes() {
  std::vector<Mesh> meshes;
  for (int r = 1; r <= most_ranks; ++r) {
    for (int s = 1; r * s <= most_ranks; ++s) {
      for (int t = 1; r * s * t <= most_ranks; ++t) meshes.push_back({.replicate = r, .shard = s, .tensor = t});
    }
  }
  return meshes;
}

/// The dp ranks of the ranks at one tensor place, in rank order, by any formula.
template <class Formula>
std::vector<int> dp_ranks(const Mesh& mesh, int tensor, Formula formula) {
  std::vector<int> found;
  for (int r = 0; r < mesh.ranks(); ++r) {
    const Coordinates at = mesh.coordinates({r});
    if (at.tensor == tensor) found.push_back(formula(mesh, at));
  }
  return found;
}

int our_formula(const Mesh& mesh, const Coordinates& at) { return mesh.dp_rank(at).value; }
int linguas_formula(const Mesh& mesh, const Coordinates& at) { return at.replicate * mesh.replicate + at.shard; }

bool has_duplicates(const std::vector<int>& values) {
  return std::set<int>(values.begin(), values.end()).size() != values.size();
}

TEST(Mesh, CoordinatesAndRanksAreInverse) {
  for (const Mesh& mesh : all_meshes()) {
    for (int r = 0; r < mesh.ranks(); ++r) ASSERT_EQ(mesh.rank_of(mesh.coordinates({r})), Rank{r}) << mesh.text();
  }
}

TEST(Mesh, TensorVariesFastestThenShardThenReplicate) {
  const Mesh mesh{.replicate = 2, .shard = 3, .tensor = 4};
  EXPECT_EQ(mesh.coordinates({1}), (Coordinates{.replicate = 0, .shard = 0, .tensor = 1}));
  EXPECT_EQ(mesh.coordinates({4}), (Coordinates{.replicate = 0, .shard = 1, .tensor = 0}));
  EXPECT_EQ(mesh.coordinates({12}), (Coordinates{.replicate = 1, .shard = 0, .tensor = 0}));
  EXPECT_EQ(mesh.coordinates({23}), (Coordinates{.replicate = 1, .shard = 2, .tensor = 3}));
}

TEST(DpRank, IsUniqueAndDenseAndInRankOrderOnEveryMesh) {
  for (const Mesh& mesh : all_meshes()) {
    std::vector<int> expected(static_cast<std::size_t>(mesh.dp_size()));
    std::iota(expected.begin(), expected.end(), 0);
    for (int t = 0; t < mesh.tensor; ++t) ASSERT_EQ(dp_ranks(mesh, t, our_formula), expected) << mesh.text();
  }
}

TEST(DpRank, DoesNotChangeWhenTensorOrTheSplitOfReplicasChanges) {
  for (const Mesh& mesh : all_meshes()) {
    const Mesh flat{.replicate = 1, .shard = mesh.dp_size(), .tensor = 1};
    for (int r = 0; r < mesh.ranks(); ++r) {
      const DpRank dp = mesh.dp_rank(mesh.coordinates({r}));
      ASSERT_EQ(dp.value, r / mesh.tensor) << mesh.text();
      ASSERT_EQ(dp, flat.dp_rank(flat.coordinates({r / mesh.tensor}))) << mesh.text();
    }
  }
}

TEST(DpRank, DoesNotCollideWhereLinguasFormulaDoes) {
  const Mesh mesh{.replicate = 2, .shard = 4, .tensor = 1};
  const std::vector<int> theirs = dp_ranks(mesh, 0, linguas_formula);
  EXPECT_EQ(theirs, (std::vector<int>{0, 1, 2, 3, 2, 3, 4, 5}));
  EXPECT_TRUE(has_duplicates(theirs));
  EXPECT_FALSE(has_duplicates(dp_ranks(mesh, 0, our_formula)));
}

TEST(DpRank, LinguasFormulaCollidesOnEveryHybridMeshThatShardsMoreThanItReplicates) {
  for (const Mesh& mesh : all_meshes()) {
    const bool collides = has_duplicates(dp_ranks(mesh, 0, linguas_formula));
    EXPECT_EQ(collides, mesh.replicate > 1 && mesh.shard > mesh.replicate) << mesh.text();
  }
}

TEST(Group, HoldsTheRanksThatDifferAlongOneAxisOnly) {
  const Mesh mesh{.replicate = 2, .shard = 3, .tensor = 2};
  const Coordinates at{.replicate = 1, .shard = 2, .tensor = 1};
  EXPECT_EQ(mesh.group(Axis::tensor, at), (std::vector<Rank>{{10}, {11}}));
  EXPECT_EQ(mesh.group(Axis::shard, at), (std::vector<Rank>{{7}, {9}, {11}}));
  EXPECT_EQ(mesh.group(Axis::replicate, at), (std::vector<Rank>{{5}, {11}}));
}

TEST(Group, PartitionsTheRanksOfEveryMesh) {
  for (const Mesh& mesh : all_meshes()) {
    for (const AxisRow& row : axes) {
      for (int r = 0; r < mesh.ranks(); ++r) {
        const std::vector<Rank> members = mesh.group(row.axis, mesh.coordinates({r}));
        ASSERT_EQ(static_cast<int>(members.size()), mesh.size(row.axis));
        ASSERT_EQ(std::count(members.begin(), members.end(), Rank{r}), 1);
        ASSERT_EQ(members, mesh.group(row.axis, mesh.coordinates(members.front())));
      }
    }
  }
}

TEST(Group, OfDataParallelRanksIsOrderedByDpRank) {
  for (const Mesh& mesh : all_meshes()) {
    const std::vector<Rank> members = mesh.group(row_of(Group::dp).axes, mesh.coordinates({mesh.ranks() - 1}));
    ASSERT_EQ(static_cast<int>(members.size()), mesh.dp_size());
    for (int i = 0; i < mesh.dp_size(); ++i) {
      const Coordinates at = mesh.coordinates(members[static_cast<std::size_t>(i)]);
      ASSERT_EQ(mesh.dp_rank(at), DpRank{i}) << mesh.text();
      ASSERT_EQ(at.tensor, mesh.tensor - 1);
    }
  }
}

TEST(Mesh, PutsPipelineRanksFarthestApartAndContextBetweenShardAndTensor) {
  const Mesh mesh{.pipeline = 2, .replicate = 2, .shard = 3, .context = 2, .tensor = 2};
  int rank = 0;
  for (int p = 0; p < 2; ++p)
    for (int r = 0; r < 2; ++r)
      for (int s = 0; s < 3; ++s)
        for (int c = 0; c < 2; ++c)
          for (int t = 0; t < 2; ++t) {
            const Coordinates at{.pipeline = p, .replicate = r, .shard = s, .context = c, .tensor = t};
            ASSERT_EQ(mesh.rank_of(at), Rank{rank});
            ASSERT_EQ(mesh.coordinates({rank++}), at);
            ASSERT_EQ(mesh.dp_rank(at), DpRank{r * 3 + s}) << "neither pipeline, context nor tensor counts";
          }
  EXPECT_EQ(mesh.ranks(), rank);
  EXPECT_EQ(mesh.dp_size(), 6);
}

TEST(Mesh, ReportsTheDistanceOfNeighbours) {
  const Mesh mesh{.pipeline = 2, .replicate = 3, .shard = 5, .context = 7, .tensor = 11};
  EXPECT_EQ(mesh.stride(Axis::tensor), 1);
  EXPECT_EQ(mesh.stride(Axis::context), 11);
  EXPECT_EQ(mesh.stride(Axis::shard), 7 * 11);
  EXPECT_EQ(mesh.stride(Axis::replicate), 5 * 7 * 11);
  EXPECT_EQ(mesh.stride(Axis::pipeline), 3 * 5 * 7 * 11);
  for (const AxisRow& row : axes) {
    const std::vector<Rank> members = mesh.group(row.axis, {});
    ASSERT_EQ(members[1].value - members[0].value, mesh.stride(row.axis)) << row.name;
  }
}

TEST(Mesh, HasARowForEveryAxisInTheOrderOfWorldRanks) {
  int place = 0;
  for (const AxisRow& row : axes) EXPECT_EQ(static_cast<int>(row.axis), place++) << row.name;
  for (const GroupRow& row : groups) EXPECT_EQ(to_text(row.group), row.name);
}

TEST(Mesh, StoresParametersOnContextRanksAsOnShardRanks) {
  const Mesh mesh{.pipeline = 2, .replicate = 2, .shard = 3, .context = 2, .tensor = 2};
  const Mesh storage = mesh.of_storage();
  EXPECT_EQ(storage, (Mesh{.pipeline = 2, .replicate = 2, .shard = 6, .tensor = 2}));
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const Coordinates at = mesh.coordinates({rank}), stored = storage.coordinates({rank});
    EXPECT_EQ(stored.shard, mesh.shard_of(at));
    EXPECT_EQ(mesh.group(row_of(Group::shard).axes, at), storage.group(row_of(Group::shard).axes, stored));
    EXPECT_EQ(mesh.group(row_of(Group::dp).axes, at), storage.group(row_of(Group::dp).axes, stored));
  }
}

TEST(Group, AlongSeveralAxesIsInRankOrder) {
  const Mesh mesh{.replicate = 2, .shard = 2, .context = 2, .tensor = 2};
  EXPECT_EQ(mesh.group({Axis::shard, Axis::context}, mesh.coordinates({9})),
            (std::vector<Rank>{{9}, {11}, {13}, {15}}));
  EXPECT_EQ(mesh.size({Axis::shard, Axis::context}), 4);
}

TEST(Mesh, ShowsAnAxisThatMostRunsDoNotHaveWhereItIsLarger) {
  EXPECT_EQ((Mesh{.pipeline = 4, .shard = 8}.text()), "4x1x8x1 (pipeline x replicate x shard x tensor)");
}

TEST(Mesh, PrintsItsAxes) {
  EXPECT_EQ((Mesh{.replicate = 2, .shard = 4, .tensor = 1}.text()), "2x4x1 (replicate x shard x tensor)");
  EXPECT_EQ(to_text(Axis::shard), "shard");
}

TEST(Mesh, TreatsARankOutsideOfItAsABug) {
  const Mesh mesh{.replicate = 1, .shard = 2, .tensor = 1};
  EXPECT_THROW((void)mesh.coordinates({2}), BugError);
  EXPECT_THROW((void)mesh.rank_of({.replicate = 0, .shard = 2, .tensor = 0}), BugError);
  EXPECT_THROW((void)mesh.rank_of({.replicate = 0, .shard = 0, .tensor = -1}), BugError);
}

}  // namespace
}  // namespace trireme::mesh
