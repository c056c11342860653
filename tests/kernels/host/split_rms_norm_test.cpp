// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/split_rms_norm.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/kernels/rms_norm.hpp"

namespace trireme::kernels {
namespace {

/// The sums of both parts of rows of 37 columns put together: what rms_norm does with whole rows.
TEST(SplitRmsNorm, OfTwoPartsIsTheNormOfTheirRows) {
  constexpr std::int64_t n = 70, width = 37, border = 16;
  constexpr double eps = 1e-3;
  at::manual_seed(3);
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const float offset : {0.0F, 1.0F}) {
      const double tolerance = type == at::kFloat ? 2e-6 : 2e-2;
      const at::Tensor x = at::randn({n, width + 3}).to(type).slice(1, 0, width), w = at::randn({width}).to(type);
      const at::Tensor d_y = at::randn({n, width}).to(type);
      const auto empty = [&](at::IntArrayRef sizes, at::ScalarType of) { return at::empty(sizes, of); };
      const at::Tensor y = empty({n, width}, type), rstd = empty({n}, at::kFloat), d_x = empty({n, width}, type),
                       d_w = empty({width}, at::kFloat);
      rms_norm(x, w, eps, y, rstd, offset);
      rms_norm_backward(d_y, x, w, rstd, {}, d_x, {.tensor = d_w, .accumulate = false}, offset);
      at::Tensor squares = at::zeros({n}), sums = at::zeros({n});
      const at::Tensor d = d_y.clone(), of_weight = at::ones({width});
      for (const auto& [begin, end] : {std::pair{std::int64_t{0}, border}, {border, width}}) {
        const at::Tensor part = empty({n}, at::kFloat), g = d.slice(1, begin, end);
        row_squares(x.slice(1, begin, end), part);
        squares += part;
        split_rms_norm_backward(g, x.slice(1, begin, end), w.slice(0, begin, end), rstd, width, g, part,
                                {.tensor = of_weight.slice(0, begin, end), .accumulate = true}, offset);
        sums += part;
      }
      EXPECT_TRUE(at::allclose((squares / width + eps).rsqrt(), rstd, 1e-6));
      subtract_scaled_rows(x, sums, d);
      EXPECT_TRUE(at::allclose(d.to(at::kFloat), d_x.to(at::kFloat), tolerance, tolerance)) << type << offset;
      EXPECT_TRUE(at::allclose(of_weight - 1, d_w, 1e-5, 1e-5)) << type << offset;
    }
}

}  // namespace
}  // namespace trireme::kernels
