// SPDX-License-Identifier: Apache-2.0
// A vocabulary cut into parts gives what the whole one gives.
#include "trireme/kernels/vocabulary.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "support/tensors.hpp"
#include "trireme/kernels/cross_entropy.hpp"
#include "trireme/kernels/embedding.hpp"

namespace trireme::kernels {
namespace {

using test::relative_error;

constexpr std::int64_t tokens = 37, vocab = 101;
const std::vector<std::pair<std::int64_t, std::int64_t>> parts{{0, 34}, {34, 34}, {68, 33}};  // first, count

class VocabularyParts : public testing::TestWithParam<at::ScalarType> {
 protected:
  [[nodiscard]] double tolerance() const { return GetParam() == at::kFloat ? 2e-6 : 1e-2; }
};

TEST_P(VocabularyParts, TogetherGiveLossAndGradientOfTheWhole) {
  const at::Tensor logits = (3 * at::randn({tokens, vocab})).to(GetParam());
  at::Tensor targets = at::randint(0, vocab, {tokens}, at::kInt);
  targets[3] = targets[30] = -1;
  std::vector<at::Tensor> statistics;
  for (const auto& [first, count] : parts) {
    statistics.push_back(at::empty({tokens, 3}, at::kFloat));
    vocabulary_statistics(logits.slice(1, first, first + count).contiguous(), targets, first, statistics.back());
  }
  for (const double z_loss : {0.0, 0.1}) {
    const at::Tensor softmax = at::empty({tokens, 2}, at::kFloat);
    const LossSums sums = combine_statistics(at::stack(statistics), targets, softmax, z_loss);

    const at::Tensor whole = logits.clone();
    const LossSums expected = cross_entropy_backward(whole, targets, 0.25, z_loss);
    EXPECT_NEAR(sums.cross_entropy / expected.cross_entropy, 1.0, 1e-6);
    EXPECT_NEAR(sums.z_loss, expected.z_loss, 1e-6 * expected.z_loss);
    for (const auto& [first, count] : parts) {
      const at::Tensor part = logits.slice(1, first, first + count).contiguous();
      cross_entropy_gradient_part(part, targets, first, softmax, 0.25, z_loss);
      EXPECT_LT(relative_error(part, whole.slice(1, first, first + count)), tolerance());
    }
  }
}

TEST_P(VocabularyParts, TogetherEmbedAsTheWholeTable) {
  const at::Tensor table = at::randn({vocab, 8}).to(GetParam());
  const at::Tensor ids = at::randint(0, vocab, {tokens}, at::kInt);
  const at::Tensor whole = at::empty({tokens, 8}, table.options());
  embedding_gather(ids, table, whole);
  at::Tensor sum = at::zeros_like(whole);
  for (const auto& [first, count] : parts) {
    const at::Tensor out = at::empty_like(whole);
    embedding_gather_part(ids, first, table.slice(0, first, first + count), out);
    sum = sum + out;
  }
  EXPECT_TRUE(test::same_bits(sum, whole));

  const auto nan = std::numeric_limits<double>::quiet_NaN();
  const Grad all{at::full({vocab, 8}, nan), false};
  embedding_scatter_add(ids, whole, all);
  for (const auto& [first, count] : parts) {
    const Grad part{at::full({count, 8}, nan), false};
    embedding_scatter_add_part(ids, first, whole, part);
    EXPECT_TRUE(test::same_bits(part.tensor, all.tensor.slice(0, first, first + count).contiguous()));
  }
}

INSTANTIATE_TEST_SUITE_P(, VocabularyParts, testing::Values(at::kFloat, at::kBFloat16));

}  // namespace
}  // namespace trireme::kernels
