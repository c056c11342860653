// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "nn/reference.hpp"

namespace trireme::nn::saved_test {
namespace {

using model::StageKind;
constexpr StageKind kinds[] = {StageKind::embedding, StageKind::attention, StageKind::mlp, StageKind::head,
                               StageKind::moe};

model::Sizes odd_sizes_of(StageKind kind) { return kind == StageKind::moe ? test::expert_sizes() : test::odd_sizes(); }
model::Sizes even_sizes_of(StageKind kind) {
  model::Sizes sizes = test::even_sizes();
  if (kind == StageKind::moe) sizes.decoder.experts = model::Experts{.count = 5, .per_token = 2, .size = 64};
  return sizes;
}

at::ScalarType type_of(DType compute) { return compute == DType::fp32 ? at::kFloat : at::kBFloat16; }

/// The bytes of the storages, each counted once: what keeping `saved` really costs.
std::int64_t storage_bytes(const Saved& saved) {
  std::int64_t bytes = 0;
  std::vector<const void*> seen;
  for (const auto& t : saved.tensors) {
    if (std::find(seen.begin(), seen.end(), t.storage().data()) != seen.end()) continue;
    seen.push_back(t.storage().data());
    bytes += static_cast<std::int64_t>(t.storage().nbytes());
  }
  return bytes;
}

Saved forward(StageKind kind, const model::Sizes& sizes, DType compute, const test::Flat& f, Mode mode) {
  const Microbatch m = test::microbatch(2, 9, sizes.vocab);
  const at::Tensor x = kind == StageKind::embedding ? at::Tensor() : at::randn({18, sizes.hidden}).to(type_of(compute));
  Saved saved;
  (void)make_stage(kind, sizes, 9, compute, 0)->forward(x, f.parameters, m, mode, saved);
  return saved;
}

TEST(Saved, TakesExactlyTheBytesThatThePlannerCounts) {
  for (const auto kind : kinds) {
    for (const auto compute : {DType::fp32, DType::bf16}) {
      const auto sizes = odd_sizes_of(kind);
      const Saved saved = forward(kind, sizes, compute, test::flat(kind, sizes, type_of(compute), false), Mode::train);
      EXPECT_EQ(storage_bytes(saved), model::saved_bytes(kind, sizes, 18, compute).value) << static_cast<int>(kind);
    }
  }
}

TEST(Saved, AreTheTensorsThatThePlannerCountsOneByOne) {
  for (const auto kind : kinds)
    for (const auto keep : {model::Keep::products, model::Keep::all}) {
      const auto sizes = odd_sizes_of(kind);
      const Mode mode = keep == model::Keep::all ? Mode::train_keep_all : Mode::train;
      const Saved saved = forward(kind, sizes, DType::bf16, test::flat(kind, sizes, at::kBFloat16, false), mode);
      std::vector<Bytes> bytes;
      for (const auto& t : saved.tensors) bytes.push_back({static_cast<std::int64_t>(t.nbytes())});
      EXPECT_EQ(bytes, model::saved_tensors(kind, sizes, 18, DType::bf16, keep)) << static_cast<int>(kind);
    }
}

TEST(Saved, IsRebuiltBitForBitWithoutAnOutput) {
  for (const auto kind : {StageKind::attention, StageKind::mlp, StageKind::moe}) {
    const auto sizes = odd_sizes_of(kind);
    const test::Flat f = test::flat(kind, sizes, at::kFloat, false);
    const Microbatch m = test::microbatch(2, 9, sizes.vocab);
    const at::Tensor x = at::randn({18, sizes.hidden});
    const auto stage = make_stage(kind, sizes, 9, DType::fp32, 0);
    Saved first, again;
    (void)stage->forward(x, f.parameters, m, Mode::train, first);
    (void)stage->forward(x, f.parameters, m, Mode::decide, again);
    EXPECT_FALSE(stage->forward(x, f.parameters, m, Mode::rebuild, again).hidden.defined());
    ASSERT_EQ(again.tensors.size(), first.tensors.size());
    for (std::size_t i = 0; i < first.tensors.size(); ++i)
      EXPECT_TRUE(test::same_bits(first.tensors[i], again.tensors[i])) << i;
  }
}

TEST(Saved, IsEmptyUnlessTraining) {
  for (const auto kind : kinds) {
    for (const auto mode : {Mode::evaluate, Mode::infer}) {
      const auto sizes = even_sizes_of(kind);
      EXPECT_TRUE(forward(kind, sizes, DType::fp32, test::flat(kind, sizes, at::kFloat, false), mode).tensors.empty());
    }
  }
}

TEST(Saved, NeverPointsIntoTheParameters) {
  for (const auto kind : kinds) {
    for (const auto& sizes : {odd_sizes_of(kind), even_sizes_of(kind)}) {
      const test::Flat f = test::flat(kind, sizes, at::kFloat, false);
      const Saved saved = forward(kind, sizes, DType::fp32, f, Mode::train);
      for (const auto& t : saved.tensors) EXPECT_NE(t.storage().data(), f.buffer.storage().data());
    }
  }
}

TEST(Saved, CarriesNoAutogradGraph) {
  for (const auto kind : kinds) {
    const auto sizes = odd_sizes_of(kind);
    test::Flat f = test::flat(kind, sizes, at::kFloat, false);
    for (auto& p : f.parameters) p = p.detach().requires_grad_();
    for (const auto& t : forward(kind, sizes, DType::fp32, f, Mode::train).tensors) EXPECT_FALSE(t.requires_grad());
  }
}

}  // namespace
}  // namespace trireme::nn::saved_test
