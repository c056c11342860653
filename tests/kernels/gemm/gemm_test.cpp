// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/gemm.hpp"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <utility>

#include "kernels/pairs.hpp"
#include "support/tensors.hpp"
#include "trireme/base/error.hpp"
#include "trireme/kernels/gemm_library.hpp"

namespace trireme::kernels {
namespace {

using test::relative_error;

struct Sizes {
  std::int64_t tokens, out, in;
};

void compare_with_fp64(GemmLibrary library, at::ScalarType type, Sizes s, double tolerance) {
  const at::Tensor x = at::randn({s.tokens, 2 * s.in}).to(type).slice(1, 0, s.in);  // rows apart
  const at::Tensor w = at::randn({s.out, s.in}).to(type);
  const at::Tensor d_y = at::randn({s.tokens, s.out + 3}).to(type).slice(1, 3);
  const at::Tensor x64 = x.to(at::kDouble);
  const at::Tensor w64 = w.to(at::kDouble);
  const at::Tensor d_y64 = d_y.to(at::kDouble);
  EXPECT_LT(relative_error(linear(library, x, w), x64.mm(w64.t())), tolerance);
  EXPECT_LT(relative_error(linear_backward_input(library, d_y, w), d_y64.mm(w64)), tolerance);
  for (const bool accumulate : {false, true}) {
    const at::Tensor grad =
        at::full({s.out, s.in}, accumulate ? 2.0 : std::numeric_limits<double>::quiet_NaN(), at::kFloat);
    linear_backward_weight(library, d_y, x, {.tensor = grad, .accumulate = accumulate});
    EXPECT_LT(relative_error(grad, d_y64.t().mm(x64) + (accumulate ? 2.0 : 0.0)), tolerance);
  }
}

TEST(Gemm, AgreesWithFp64InEveryLibraryForOddSizes) {
  for (const auto& [library, name] : gemm_libraries) {
    for (const bool pairs : {true, false}) {
      const test::Pairs chosen(pairs);
      if (!pairs && library != GemmLibrary::blocked) continue;
      for (const auto& s : {Sizes{1, 1, 1}, Sizes{7, 3, 5}, Sizes{33, 70, 129}, Sizes{20, 2100, 300},
                            Sizes{530, 90, 540}, Sizes{31, 130, 2100}}) {
        if (runs_here(library, at::kFloat)) compare_with_fp64(library, at::kFloat, s, 1e-6);
        if (runs_here(library, at::kBFloat16)) compare_with_fp64(library, at::kBFloat16, s, 4e-3);
      }
    }
  }
}

TEST(Gemm, AddsTheResidual) {
  for (const auto& [library, name] : gemm_libraries) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      if (!runs_here(library, type)) continue;
      const at::Tensor x = at::randn({19, 2131}).to(type);
      const at::Tensor w = at::randn({83, 2131}).to(type);
      const at::Tensor residual = at::randn({19, 83}).to(type);
      const at::Tensor expected = residual.to(at::kDouble) + x.to(at::kDouble).mm(w.to(at::kDouble).t());
      EXPECT_LT(relative_error(linear_add(library, x, w, residual), expected), type == at::kFloat ? 1e-6 : 5e-3)
          << name;
    }
  }
}

/// So many inputs that a weight gradient packs more outputs at once, as many as a larger part of the cache holds.
constexpr Sizes many_inputs{512, 1100, 2300};

TEST(Gemm, BlockedWeightGradientsOfManyInputsAgreeWithFp64) {
  for (const auto& [type, pairs] : {std::pair{at::kFloat, true}, {at::kBFloat16, true}, {at::kBFloat16, false}}) {
    const test::Pairs chosen(pairs);
    const at::Tensor x = at::randn({many_inputs.tokens, many_inputs.in}).to(type);
    const at::Tensor d_y = at::randn({many_inputs.tokens, many_inputs.out}).to(type);
    const at::Tensor grad = at::full({many_inputs.out, many_inputs.in}, 2.0, at::kFloat);
    linear_backward_weight(GemmLibrary::blocked, d_y, x, {.tensor = grad, .accumulate = true});
    EXPECT_LT(relative_error(grad, d_y.to(at::kDouble).t().mm(x.to(at::kDouble)) + 2.0), 1e-6);
  }
}

TEST(Gemm, BlockedGivesTheSameBitsOnOneThread) {
  for (const auto& [type, pairs] : {std::pair{at::kFloat, true}, {at::kBFloat16, true}, {at::kBFloat16, false}}) {
    const test::Pairs chosen(pairs);
    for (const Sizes& s : {Sizes{530, 700, 600}, many_inputs}) {
      const at::Tensor x = at::randn({s.tokens, s.in}).to(type), w = at::randn({s.out, s.in}).to(type);
      const at::Tensor d_y = at::randn({s.tokens, s.out}).to(type);
      const auto run = [&](const at::Tensor& grad) {
        linear_backward_weight(GemmLibrary::blocked, d_y, x, {.tensor = grad, .accumulate = false});
        return std::pair{linear(GemmLibrary::blocked, x, w), linear_backward_input(GemmLibrary::blocked, d_y, w)};
      };
      const at::Tensor team_grad = at::randn({s.out, s.in}), one_grad = at::randn({s.out, s.in});
      const auto team = run(team_grad);
      std::pair<at::Tensor, at::Tensor> one;
      test::on_one_thread([&] { one = run(one_grad); });
      EXPECT_TRUE(test::same_bits(team.first, one.first));
      EXPECT_TRUE(test::same_bits(team.second, one.second));
      EXPECT_TRUE(test::same_bits(team_grad, one_grad));
    }
  }
}

TEST(GemmChoice, PrintsAndParsesBack) {
  using enum GemmLibrary;
  const GemmChoice::Products some{.forward = onednn, .backward_input = at, .backward_weight = at};
  const GemmChoice::Products others{.forward = at, .backward_input = onednn, .backward_weight = blocked};
  const GemmChoice same{.fp32 = {some, some}, .bf16 = {others, others}, .pairs = false};
  EXPECT_EQ(to_text(same), "fp32=onednn,at,at bf16=at,onednn,blocked pairs=off");
  const GemmChoice by_shape{.fp32 = {some, others}, .bf16 = {others, some}, .pairs = true};
  EXPECT_EQ(to_text(by_shape), "fp32=onednn,at,at/at,onednn,blocked bf16=at,onednn,blocked/onednn,at,at pairs=on");
  for (const GemmChoice& choice : {same, by_shape}) EXPECT_EQ(parse_gemm_choice(to_text(choice)), choice);
  EXPECT_EQ(to_text(GemmChoice{}), "fp32=at,at,at bf16=at,at,at pairs=on");
  EXPECT_EQ(parse_gemm_choice("fp32=at,at,at bf16=at,at,at").pairs, can_multiply_pairs());  // of older checkpoints
}

/// The bits show the library of a product: sums of many terms are in another order.
TEST(GemmChoice, HoldsForProductsOfItsShapeClass) {
  using enum GemmLibrary;
  const GemmChoice before = gemm_choice();
  for (const Sizes& s : {Sizes{1100, 1200, 1100}, Sizes{1100, 1100, 1100}, Sizes{1100, 1100, 1200}}) {
    const at::Tensor x = at::randn({s.tokens, s.in}), w = at::randn({s.out, s.in}), d_y = at::randn({s.tokens, s.out});
    const at::Tensor residual = at::randn({s.tokens, s.out});
    const auto weight_gradient = [&](auto... library) {
      const at::Tensor grad = at::full({s.out, s.in}, 0.0, at::kFloat);
      linear_backward_weight(library..., d_y, x, Grad{.tensor = grad, .accumulate = false});
      return grad;
    };
    const auto of = [&](GemmLibrary library) {
      return std::array{linear(library, x, w), linear_add(library, x, w, residual),
                        linear_backward_input(library, d_y, w), weight_gradient(library)};
    };
    const auto by_at = of(at), by_blocked = of(blocked);
    for (const bool narrow_is_blocked : {false, true}) {
      const GemmChoice::Products all_blocked{blocked, blocked, blocked}, none;
      set_gemm_choice(
          {.fp32 = {.wide = narrow_is_blocked ? none : all_blocked, .narrow = narrow_is_blocked ? all_blocked : none}});
      const std::array found{kernels::linear(x, w), linear_add(x, w, residual), linear_backward_input(d_y, w),
                             weight_gradient()};
      const bool is_blocked = narrow_is_blocked == (s.out < s.in);
      for (std::size_t i = 0; i < found.size(); ++i) {
        ASSERT_FALSE(test::same_bits(by_at[i], by_blocked[i])) << "this test shows nothing";
        EXPECT_TRUE(test::same_bits(found[i], is_blocked ? by_blocked[i] : by_at[i])) << i << " of " << s.out;
      }
    }
  }
  set_gemm_choice(before);
}

TEST(GemmChoice, RefusesOtherTexts) {
  for (const auto* text :
       {"", "at", "fp32=at,at,at", "fp32=at,at bf16=at,at,at", "fp32=at,at,at bf16=at,at,mkl",
        "fp32=at,at,at bf16=at,at,at ", "fp32=at,at,at bf16=at,at,at pairs=", "fp32=at,at,at bf16=at,at,at pairs=1",
        "fp32=at,at,at pairs=on bf16=at,at,at", "fp32=at,at,at/ bf16=at,at,at", "fp32=at,at,at/at,at bf16=at,at,at",
        "fp32=at,at,at/at,at,at/at,at,at bf16=at,at,at", "fp32=at,at,at bf16=/at,at,at"}) {
    EXPECT_THROW((void)parse_gemm_choice(text), ConfigError) << text;
  }
}

TEST(GemmChoice, MeasuredLibrariesRunHere) {
  const GemmChoice choice = measure_gemm();
  for (const auto& [layers, type] : {std::pair{choice.fp32, at::kFloat}, {choice.bf16, at::kBFloat16}})
    for (const GemmChoice::Products& products : {layers.wide, layers.narrow})
      for (const auto library : {products.forward, products.backward_input, products.backward_weight})
        EXPECT_TRUE(runs_here(library, type));
}

}  // namespace
}  // namespace trireme::kernels
