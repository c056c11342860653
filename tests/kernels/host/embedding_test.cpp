// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/embedding.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <limits>

#include "support/tensors.hpp"
#include "trireme/base/error.hpp"

namespace trireme::kernels {
namespace {

TEST(EmbeddingGather, CopiesTheRowOfEachId) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor ids = at::randint(0, 11, {29}, at::kInt);
    const at::Tensor table = at::randn({11, 5}).to(type);
    const at::Tensor out = at::empty({29, 5}, type);
    embedding_gather(ids, table, out);
    EXPECT_TRUE(test::same_bits(out, table.index_select(0, ids)));
  }
}

TEST(EmbeddingScatterAdd, AddsTheRowsOfEachIdInOrder) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const bool accumulate : {false, true}) {
      const at::Tensor ids = at::randint(0, 6, {100}, at::kInt);  // many repeats, and id 6 never
      const at::Tensor d_out = at::randn({100, 13}).to(type);
      const at::Tensor start = at::randn({7, 13});
      const at::Tensor grad = accumulate ? start.clone() : at::full({7, 13}, std::numeric_limits<double>::quiet_NaN());
      embedding_scatter_add(ids, d_out, {.tensor = grad, .accumulate = accumulate});
      at::Tensor expected = accumulate ? start.clone() : at::zeros({7, 13});
      for (std::int64_t n = 0; n < 100; ++n) expected[ids[n].item<int>()] += d_out[n];
      EXPECT_TRUE(test::same_bits(grad, expected));
    }
  }
}

TEST(EmbeddingScatterAdd, GivesTheSameBitsOnOneThread) {
  const at::Tensor ids = at::randint(0, 9, {500}, at::kInt);
  const at::Tensor d_out = at::randn({500, 24});
  const at::Tensor team = at::empty({9, 24});
  const at::Tensor one = at::empty({9, 24});
  embedding_scatter_add(ids, d_out, {.tensor = team, .accumulate = false});
  test::on_one_thread([&] { embedding_scatter_add(ids, d_out, {.tensor = one, .accumulate = false}); });
  EXPECT_TRUE(test::same_bits(team, one));
}

TEST(Embedding, RefusesIdsOutsideTheTable) {
  const at::Tensor out = at::empty({1, 4});
  const at::Tensor id = at::randint(0, 1, {1}, at::kInt);
  EXPECT_THROW(embedding_gather(id + 3, at::randn({3, 4}), out), BugError);
  EXPECT_THROW(embedding_scatter_add(id - 1, out, {.tensor = at::zeros({3, 4}), .accumulate = true}), BugError);
}

}  // namespace
}  // namespace trireme::kernels
