// SPDX-License-Identifier: Apache-2.0
// Operands of fp8 products on a device against those of the host, and where _scaled_mm looks for them; the products.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <limits>

#include "kernels/cuda.hpp"
#include "kernels/fp8_operands.hpp"
#include "support/gpu.hpp"
#include "support/tensors.hpp"
#include "trireme/device/gpus.hpp"
#include "trireme/kernels/fp8.hpp"

namespace trireme::kernels {
namespace {

using fp8_operands::for_each_rounding, fp8_operands::recipes, fp8_operands::wide;
using test::relative_error, test::same_bits, test::to_kernels;

class Fp8OnDevice : public test::GpuTest {};

/// The scale of every element [outer, summed]. MX: tiles of 128 rows and 4 blocks, rows r, r + 32, r + 64, r + 96 of a
/// tile side by side.
at::Tensor spread(const at::Tensor& scales, Fp8 recipe, std::int64_t outer, std::int64_t summed) {
  if (recipe != Fp8::mx) return scales.cpu().expand({outer, summed});
  const std::int64_t down = (outer + 127) / 128, across = (summed / 32 + 3) / 4;
  return scales.cpu()
      .view({down, across, 32, 4, 4})
      .permute({0, 3, 2, 1, 4})
      .reshape({down * 128, across * 4})
      .slice(0, 0, outer)
      .slice(1, 0, summed / 32)
      .to(at::kFloat)
      .repeat_interleave(32, 1);
}

/// Dequantized values of an operand, comparable to fp8_values.
at::Tensor values_of(const cuda::Fp8Operand& operand, const Fp8Rounding& rounding) {
  const at::Tensor codes = operand.values.cpu().to(at::kFloat);
  const at::Tensor values = codes * spread(operand.scales, rounding.recipe, codes.size(0), codes.size(1));
  return rounding.sum == Fp8Sum::down_columns ? values.t().contiguous() : values;
}

TEST_F(Fp8OnDevice, OperandsAreThoseOfTheHost) {
  for_each_rounding([](const Fp8Rounding& rounding) {
    for (const auto type : {at::kFloat, at::kBFloat16})
      for (const auto& [summed, outer] :
           {std::pair<std::int64_t, std::int64_t>{32, 1}, {96, 7}, {320, 130}, {2080, 40}})
        for (const std::int64_t gap : {0, 8, 3}) {  // between rows: none, whole packs, not
          const bool down = rounding.sum == Fp8Sum::down_columns;
          const at::Tensor x = wide(down ? std::array{summed, outer + gap} : std::array{outer, summed + gap}, type);
          const auto view = [&](const at::Tensor& t) { return t.slice(1, 0, t.size(1) - gap); };
          const cuda::Fp8Operand operand = cuda::fp8_quantize(view(to_kernels(x)), rounding);
          EXPECT_TRUE(same_bits(values_of(operand, rounding), fp8_values(view(x), rounding)))
              << summed << " x " << outer << ", gap " << gap;
        }
  });
}

TEST_F(Fp8OnDevice, OddTokensAndHalfBlocksOfWeightsHaveOperands) {
  for (const Fp8 recipe : {Fp8::rowwise, Fp8::tensorwise})
    for (const Fp8Sum sum : {Fp8Sum::along_rows, Fp8Sum::down_columns}) {
      const Fp8Rounding rounding{.recipe = recipe, .sum = sum};
      const at::Tensor x = wide({48, 80}, at::kBFloat16);
      EXPECT_TRUE(same_bits(values_of(cuda::fp8_quantize(to_kernels(x), rounding), rounding), fp8_values(x, rounding)));
    }
  for (const Fp8 recipe : recipes) {  // an expert without tokens
    const cuda::Fp8Operand none = cuda::fp8_quantize(to_kernels(at::empty({0, 64}, at::kBFloat16)), {.recipe = recipe});
    EXPECT_EQ(none.values.sizes(), at::IntArrayRef({0, 64}));
  }
}

TEST_F(Fp8OnDevice, EveryBf16NumberHasTheHostsCode) {
  at::Tensor all = at::zeros({512, 128}, at::kBFloat16);
  auto* const data = static_cast<std::uint16_t*>(all.data_ptr());
  for (int i = 0; i < 65536; ++i) data[i] = static_cast<std::uint16_t>(i);
  for_each_rounding([&](const Fp8Rounding& rounding) {
    const at::Tensor found = values_of(cuda::fp8_quantize(to_kernels(all), rounding), rounding);
    const at::Tensor expected = fp8_values(all, rounding);
    EXPECT_TRUE(at::equal(found.isnan(), expected.isnan()));
    EXPECT_TRUE(same_bits(found.nan_to_num(), expected.nan_to_num()));
  });
}

TEST_F(Fp8OnDevice, ProductsFollowThoseOfTheHost) {
  if (!test::on_gpu()) GTEST_SKIP() << "libtorch multiplies these on GPUs only";
  const device::Gpu gpu = device::probe_gpus().gpus.front();
  for (const Fp8 recipe : recipes) {
    if (missing_fp8_capability(recipe, gpu.major, gpu.minor) != nullptr) continue;
    for (const auto& [tokens, out, in] : {std::array<std::int64_t, 3>{1, 32, 32}, {37, 64, 96}, {512, 256, 2048}}) {
      const at::Tensor x = wide({tokens, in}, at::kBFloat16), w = at::randn({out, in}).to(at::kBFloat16),
                       d_y = wide({tokens, out}, at::kBFloat16);
      // Forward sums may be fast ones, which lose bits.
      EXPECT_LT(relative_error(cuda::fp8_linear(recipe, to_kernels(x), to_kernels(w)).cpu(), fp8_linear(recipe, x, w)),
                2e-2);
      EXPECT_LT(relative_error(cuda::fp8_backward_input(recipe, to_kernels(d_y), to_kernels(w)).cpu(),
                               fp8_backward_input(recipe, d_y, w)),
                6e-3);
      EXPECT_TRUE(same_bits(cuda::fp8_linear(recipe, to_kernels(x), to_kernels(w)).cpu(),
                            cuda::fp8_linear(recipe, to_kernels(x), to_kernels(w)).cpu()));
    }
  }
}

}  // namespace
}  // namespace trireme::kernels
