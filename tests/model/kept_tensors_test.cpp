// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "small_architecture.hpp"
#include "trireme/model/activations.hpp"

namespace trireme::model::kept_tensors_test {
namespace {

/// The models of all families, whole and sharded over each axis.
std::vector<Model> models() {
  std::vector<Model> found;
  for (const Architecture& family : architectures()) {
    found.push_back(build(small(family)));
    found.push_back(build(small(family), {.ranks = 2, .sequence_parallel = true}));
    found.push_back(build(small(family), {.context = {.ranks = 2}}));
    if (!family.decoder.latent)
      found.push_back(build(small(family), {.context = {.ranks = 2, .method = config::ContextMethod::heads}}));
    if (family.decoder.experts) found.push_back(build(small(family), {.experts = {.ranks = 2}}));
  }
  return found;
}

TEST(KeptTensors, HaveOneNameEachAndEitherASavePolicyOrAReaderAmongTheGradients) {
  for (const Model& model : models())
    for (const ComputeBlock& block : model.compute_blocks)
      for (const Stage& stage : block.stages) {
        std::set<std::pair<TensorId, bool>> names;
        for (const TensorSpec& tensor : kept_tensors(stage.kind, model.held)) {
          EXPECT_TRUE(names.emplace(tensor.id, tensor.gradient).second) << model.architecture << " " << stage.name;
          EXPECT_TRUE(tensor.waits || tensor.policy != SavePolicy::never) << model.architecture << " " << stage.name;
          EXPECT_GT(tensor.size.width, 0) << model.architecture << " " << stage.name;
        }
      }
}

TEST(KeptTensors, AreCountedByTheTokensOfTheirUnit) {
  const Counts counts(7, 5, 3);
  const auto bytes = [&](Per per, Element element) { return bytes_of(Size{per, 10, element}, counts, DType::bf16); };
  EXPECT_EQ(bytes(Per::once, Element::fp32), Bytes{40});
  EXPECT_EQ(bytes(Per::token, Element::compute), Bytes{7 * 20});
  EXPECT_EQ(bytes(Per::stream_token, Element::int32), Bytes{5 * 40});
  EXPECT_EQ(bytes(Per::row, Element::compute), Bytes{3 * 20});
}

TEST(KeptTensors, OfARecomputedBlockAreTheChoicesOfItsRouters) {
  for (const Model& model : models())
    for (const ComputeBlock& block : model.compute_blocks)
      for (const Stage& stage : block.stages) {
        const bool chooses = stage.kind == StageKind::moe || stage.kind == StageKind::route;
        EXPECT_EQ(saved_bytes(stage.kind, model.held, 10, DType::bf16, Keep::input),
                  chooses ? Bytes{10 * 4 * model.sizes.decoder.experts->per_token} : Bytes{});
      }
}

}  // namespace
}  // namespace trireme::model::kept_tensors_test
