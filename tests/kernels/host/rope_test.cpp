// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/rope.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/tensors.hpp"
#include "trireme/base/error.hpp"

namespace trireme::kernels {
namespace {

TEST(RopeTable, HoldsTheAnglesOfTheFormula) {
  const RopeTable table = rope_table(50, 12, 500.0, std::nullopt);
  for (std::int64_t p : {0, 1, 49}) {
    for (std::int64_t i = 0; i < 6; ++i) {
      const double angle = static_cast<double>(p) * std::pow(500.0, -2.0 * static_cast<double>(i) / 12.0);
      EXPECT_NEAR(table.cos[p][i].item<float>(), std::cos(angle), 1e-5);
      EXPECT_NEAR(table.sin[p][i].item<float>(), std::sin(angle), 1e-5);
    }
  }
}

TEST(RopeTable, ScalesLongWavelengthsOnlyAsLlama31Does) {
  const config::RopeScaling scaling{
      .factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_max_position_embeddings = 64};
  const RopeTable plain = rope_table(2, 16, 10000.0, std::nullopt);
  const RopeTable scaled = rope_table(2, 16, 10000.0, scaling);
  for (std::int64_t i = 0; i < 8; ++i) {
    const double frequency = std::pow(10000.0, -static_cast<double>(i) / 8.0);
    const double wavelength = 2 * M_PI / frequency;
    const double smooth = (64 / wavelength - 1) / 3;
    const double expected = wavelength > 64
                                ? frequency / 8
                                : (wavelength < 16 ? frequency : (1 - smooth) * frequency / 8 + smooth * frequency);
    EXPECT_NEAR(scaled.sin[1][i].item<float>(), std::sin(expected), 1e-6) << i;
  }
  EXPECT_EQ(plain.sin[1][0].item<float>(), scaled.sin[1][0].item<float>());
  EXPECT_NE(plain.sin[1][7].item<float>(), scaled.sin[1][7].item<float>());
}

TEST(Rotate, TurnsPairsHalfAHeadApart) {
  constexpr std::int64_t seq_len = 5, head_dim = 6;
  const RopeTable table = rope_table(seq_len, head_dim, 100.0, std::nullopt);
  const at::Tensor x = at::randn({2 * seq_len, 3 * head_dim});
  const at::Tensor y = x.clone();
  rotate(y, table, seq_len, Rotation::forward);
  for (std::int64_t n = 0; n < x.size(0); ++n) {
    for (std::int64_t column = 0; column < x.size(1); ++column) {
      const std::int64_t i = column % head_dim;
      const std::int64_t pair = i < 3 ? column + 3 : column - 3;
      const float cos = table.cos[n % seq_len][i % 3].item<float>();
      const float sin = table.sin[n % seq_len][i % 3].item<float>() * (i < 3 ? -1.0F : 1.0F);
      EXPECT_NEAR(y[n][column].item<float>(), x[n][column].item<float>() * cos + x[n][pair].item<float>() * sin, 1e-6);
    }
  }
}

TEST(Rotate, InverseUndoesForwardAlsoInAColumnSlice) {
  const RopeTable table = rope_table(9, 8, 10000.0, std::nullopt);
  const at::Tensor x = at::randn({18, 40});
  const at::Tensor y = x.clone();
  const at::Tensor slice = y.slice(1, 8, 24);
  rotate(slice, table, 9, Rotation::forward);
  EXPECT_TRUE(test::same_bits(y.slice(1, 24), x.slice(1, 24)));
  EXPECT_GT(test::relative_error(slice, x.slice(1, 8, 24)), 0.1);
  rotate(slice, table, 9, Rotation::inverse);
  EXPECT_LT(test::relative_error(y, x), 1e-6);
}

TEST(Rotate, RefusesASequenceBeyondTheTable) {
  const RopeTable table = rope_table(4, 8, 10000.0, std::nullopt);
  EXPECT_THROW(rotate(at::randn({5, 8}), table, 5, Rotation::forward), BugError);
}

TEST(Rope, OfPartOfAHeadOrOfNeighboursIsThatOfWholeHalves) {
  constexpr std::int64_t seq_len = 5, head_dim = 10, width = 6;
  const at::Tensor x = at::randn({seq_len, 2 * head_dim});
  RopeTable table = rope_table(seq_len, width, 100.0, std::nullopt);
  const at::Tensor part = x.view({seq_len, 2, head_dim}).slice(2, 0, width).reshape({seq_len, 2 * width}).contiguous();
  rotate(part, table, seq_len, Rotation::forward);
  table.head_dim = head_dim;
  const at::Tensor whole = x.clone();
  rotate(whole, table, seq_len, Rotation::forward);
  const at::Tensor heads = whole.view({seq_len, 2, head_dim});
  EXPECT_TRUE(test::same_bits(heads.slice(2, 0, width).reshape({seq_len, 2 * width}), part));
  EXPECT_TRUE(
      test::same_bits(heads.slice(2, width).contiguous(), x.view({seq_len, 2, head_dim}).slice(2, width).contiguous()));

  // The last elements of a head turn as the first ones do.
  table.begin = head_dim - width;
  const at::Tensor last = at::cat({x.view({seq_len, 2, head_dim}).slice(2, width), at::empty({seq_len, 2, width})}, 2);
  last.slice(2, table.begin).copy_(x.view({seq_len, 2, head_dim}).slice(2, 0, width));
  rotate(last.view({seq_len, 2 * head_dim}), table, seq_len, Rotation::forward);
  EXPECT_TRUE(test::same_bits(last.slice(2, table.begin).contiguous(), heads.slice(2, 0, width).contiguous()));
  EXPECT_TRUE(test::same_bits(last.slice(2, 0, table.begin).contiguous(), heads.slice(2, width).contiguous()));
  table.begin = 0;

  // Pairs (2i, 2i + 1) turn as pairs (i, i + 3) do in a head in that order.
  const at::Tensor order = at::tensor({0, 2, 4, 1, 3, 5, 6, 7, 8, 9}, at::kLong);
  const at::Tensor in_order = x.view({seq_len, 2, head_dim}).index_select(2, order).reshape({seq_len, 2 * head_dim});
  rotate(in_order, table, seq_len, Rotation::forward);
  table.adjacent_pairs = true;
  const at::Tensor neighbours = x.clone();
  rotate(neighbours, table, seq_len, Rotation::forward);
  EXPECT_LT(test::relative_error(neighbours.view({seq_len, 2, head_dim}).index_select(2, order),
                                 in_order.view({seq_len, 2, head_dim})),
            1e-7);
  rotate(neighbours, table, seq_len, Rotation::inverse);
  EXPECT_LT(test::relative_error(neighbours, x), 1e-6);
}

}  // namespace
}  // namespace trireme::kernels
