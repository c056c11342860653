// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/fp8.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "kernels/fp8_operands.hpp"
#include "support/reference/plain_fp8.hpp"
#include "support/tensors.hpp"
#include "trireme/kernels/gemm.hpp"

namespace trireme::kernels {
namespace {

using fp8_operands::for_each_rounding, fp8_operands::recipes, fp8_operands::wide;
using test::relative_error, test::same_bits;

test::PlainRounding plain(const Fp8Rounding& r) {
  return {.recipe = r.recipe, .e5m2 = r.type == Fp8Type::e5m2, .down_columns = r.sum == Fp8Sum::down_columns};
}

TEST(Fp8, ValuesAreThoseOfTheTable) {
  for_each_rounding([](const Fp8Rounding& rounding) {
    for (const auto type : {at::kFloat, at::kBFloat16})
      for (const auto& [rows, width] : {std::pair{1, 1}, {5, 33}, {70, 64}, {3, 300}, {129, 31}}) {
        const at::Tensor x = wide({rows, 2 * width}, type).slice(1, 0, width);  // rows apart
        EXPECT_TRUE(same_bits(fp8_values(x, rounding), test::plain_fp8_values(x.to(at::kFloat), plain(rounding))))
            << rows << " x " << width;
      }
  });
}

TEST(Fp8, EveryBf16NumberIsRoundedByTheTable) {
  at::Tensor all = at::zeros({2, 32768}, at::kBFloat16);
  auto* const data = static_cast<std::uint16_t*>(all.data_ptr());
  for (int i = 0; i < 65536; ++i) data[i] = static_cast<std::uint16_t>(i);
  // With the largest value in its row a number is rounded as it is.
  for (const auto& [type, most, torch_type] :
       {std::tuple{Fp8Type::e4m3, 448.0, at::kFloat8_e4m3fn}, std::tuple{Fp8Type::e5m2, 57344.0, at::kFloat8_e5m2}}) {
    const at::Tensor fits = at::where(all.abs().to(at::kFloat) <= most, all, at::full_like(all, most));
    const Fp8Rounding rounding{.recipe = Fp8::rowwise, .type = type};
    const at::Tensor found = fp8_values(fits, rounding);
    EXPECT_TRUE(same_bits(found, fits.to(torch_type).to(at::kFloat))) << "libtorch's own cast";
    EXPECT_TRUE(same_bits(found, test::plain_fp8_values(fits.to(at::kFloat), plain(rounding))));
  }
}

TEST(Fp8, ValuesAreLibtorchsCastsOfScaledElements) {
  for (const Fp8Type type : {Fp8Type::e4m3, Fp8Type::e5m2}) {
    const at::Tensor x = wide({40, 96}, at::kBFloat16).to(at::kFloat);
    const double most = type == Fp8Type::e4m3 ? 448 : 57344;
    const at::Tensor scale = at::exp2((x.abs().amax({1}, true).to(at::kDouble) / most).log2().ceil()).to(at::kFloat);
    const auto torch_type = type == Fp8Type::e4m3 ? at::kFloat8_e4m3fn : at::kFloat8_e5m2;
    EXPECT_TRUE(same_bits(fp8_values(x, {.recipe = Fp8::rowwise, .type = type}),
                          (x / scale).to(torch_type).to(at::kFloat) * scale));
  }
}

TEST(Fp8, ScalesAreTheLeastPowersOfTwoThatHoldTheLargest) {
  const auto byte = [](float largest, Fp8Type type) {
    return static_cast<int>(fp8_scale_byte(std::bit_cast<std::uint32_t>(largest), type)) - 127;
  };
  EXPECT_EQ(byte(448.0F, Fp8Type::e4m3), 0);
  EXPECT_EQ(byte(std::nextafter(448.0F, 1e9F), Fp8Type::e4m3), 1);
  EXPECT_EQ(byte(500.0F, Fp8Type::e4m3), 1) << "e4m3 has no infinity: 500 would be NaN";
  EXPECT_EQ(byte(896.0F, Fp8Type::e4m3), 1);
  EXPECT_EQ(byte(57344.0F, Fp8Type::e5m2), 0);
  EXPECT_EQ(byte(57345.0F, Fp8Type::e5m2), 1);
  EXPECT_EQ(byte(std::numeric_limits<float>::max(), Fp8Type::e4m3), 120);
  for (const float tiny : {0.0F, std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::min()})
    EXPECT_EQ(byte(tiny, Fp8Type::e4m3), -126) << "the scale and its inverse are normal numbers";
  EXPECT_EQ(byte(std::numeric_limits<float>::infinity(), Fp8Type::e4m3), 128) << "NaN";
  EXPECT_TRUE(std::isnan(fp8_scale(255)));
}

TEST(Fp8, WhatIsNotFiniteMakesAllOfItsScaleNaN) {
  for (const double bad : {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
                           std::numeric_limits<double>::quiet_NaN()}) {
    at::Tensor x = at::randn({64, 96});
    x[33][40] = bad;
    for_each_rounding([&](const Fp8Rounding& rounding) {
      const at::Tensor found = fp8_values(x, rounding);
      at::Tensor shares = at::zeros({64, 96}, at::kBool);
      const bool rows = rounding.sum == Fp8Sum::along_rows;
      if (rounding.recipe == Fp8::tensorwise)
        shares.fill_(true);
      else if (rounding.recipe == Fp8::mx)
        (rows ? shares[33].slice(0, 32, 64) : shares.select(1, 40).slice(0, 32, 64)).fill_(true);
      else
        (rows ? shares[33] : shares.select(1, 40)).fill_(true);
      EXPECT_TRUE(at::equal(at::isnan(found), shares));
    });
  }
}

TEST(Fp8, ProductsFollowTheirOracle) {
  for (const Fp8 recipe : recipes)
    for (const auto type : {at::kFloat, at::kBFloat16})
      for (const auto& [tokens, out, in] : {std::array<std::int64_t, 3>{1, 32, 32}, {37, 64, 96}, {130, 160, 544}}) {
        const at::Tensor x = wide({tokens, in + 32}, type).slice(1, 0, in), w = at::randn({out, in}).to(type),
                         d_y = wide({tokens, out}, type) * 1e-6;
        const auto values = [&](const at::Tensor& t, const test::PlainRounding& rounding) {
          return test::plain_fp8_values(t.to(at::kDouble), rounding);
        };
        const at::Tensor y = values(x, {.recipe = recipe}).mm(values(w, {.recipe = recipe}).t());
        const at::Tensor d_x = values(d_y, {.recipe = recipe, .e5m2 = recipe == Fp8::tensorwise})
                                   .mm(values(w, {.recipe = recipe, .down_columns = true}));
        // bf16: one rounding of the sum.
        const double tolerance = type == at::kFloat ? 1e-6 : 3e-3;
        EXPECT_LT(relative_error(linear(x, w, recipe), y), tolerance);
        EXPECT_LT(relative_error(linear_backward_input(d_y, w, recipe), d_x), tolerance);
        if (type == at::kBFloat16) {
          EXPECT_LT(relative_error(linear(x.to(at::kFloat), w.to(at::kFloat), recipe), y), 1e-6);
          EXPECT_TRUE(
              same_bits(linear(x, w, recipe), linear(x.to(at::kFloat), w.to(at::kFloat), recipe).to(at::kBFloat16)));
        }
        const at::Tensor residual = at::randn({tokens, out}).to(type);
        EXPECT_TRUE(same_bits(linear_add(x, w, residual, recipe), linear(x, w, recipe) + residual));
      }
}

TEST(Fp8, TheRowOfATokenDoesNotDependOnTheOthers) {
  const at::Tensor x = wide({64, 96}, at::kBFloat16), w = at::randn({32, 96}).to(at::kBFloat16);
  for (const Fp8 recipe : {Fp8::rowwise, Fp8::mx})
    EXPECT_TRUE(
        same_bits(fp8_values(x, {.recipe = recipe}).slice(0, 7, 9), fp8_values(x.slice(0, 7, 9), {.recipe = recipe})));
  EXPECT_FALSE(same_bits(fp8_values(x, {.recipe = Fp8::tensorwise}).slice(0, 7, 9),
                         fp8_values(x.slice(0, 7, 9), {.recipe = Fp8::tensorwise})));
}

TEST(Fp8, GivesTheSameBitsOnOneThread) {
  const at::Tensor x = wide({300, 700}, at::kFloat);
  for_each_rounding([&](const Fp8Rounding& rounding) {
    const at::Tensor team = fp8_values(x, rounding);
    at::Tensor one;
    test::on_one_thread([&] { one = fp8_values(x, rounding); });
    EXPECT_TRUE(same_bits(team, one));
  });
}

}  // namespace
}  // namespace trireme::kernels
