// SPDX-License-Identifier: Apache-2.0
//
// Matrix products that libtorch has on GPUs only, on the simulated one. They ask of their operands what libtorch does
// there.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "trireme/base/error.hpp"

namespace trireme::test::gpu {
namespace {

/// Products of bf16 with sums in fp32, which libtorch has on GPUs only.
at::Tensor& mm_wide(const at::Tensor& a, const at::Tensor& b, at::ScalarType type, at::Tensor& out) {
  return out.copy_(at::mm(a.to(type), b.to(type)));
}
at::Tensor& addmm_wide(const at::Tensor& to, const at::Tensor& a, const at::Tensor& b, at::ScalarType type,
                       const at::Scalar& beta, const at::Scalar& alpha, at::Tensor& out) {
  return out.copy_(at::addmm(to, a.to(type), b.to(type), beta, alpha));
}

/// The scale of every element of an operand [outer, summed]. MX: tiles of 128 rows and 4 blocks, in which rows r, r +
/// 32, r + 64 and r + 96 are adjacent.
at::Tensor spread_scales(const at::Tensor& scales, const at::Tensor& operand) {
  const std::int64_t outer = operand.size(0), summed = operand.size(1);
  if (scales.scalar_type() == at::kFloat) return scales.expand({outer, summed});
  const std::int64_t down = (outer + 127) / 128, across = (summed / 32 + 3) / 4;
  invariant(scales.scalar_type() == at::kFloat8_e8m0fnu && scales.numel() == down * across * 512,
            "_scaled_mm takes scales in fp32 or, of blocks of 32, in tiles");
  const at::Tensor rows = scales.to(at::kFloat).view({down, across, 32, 4, 4}).permute({0, 3, 2, 1, 4});
  return rows.reshape({down * 128, across * 4}).slice(0, 0, outer).slice(1, 0, summed / 32).repeat_interleave(32, 1);
}

/// fp8 products, which libtorch's CPU kernel has with one scale for each operand only.
at::Tensor scaled_mm(const at::Tensor& a, const at::Tensor& b, const at::Tensor& scale_a, const at::Tensor& scale_b,
                     const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& scale_result,
                     std::optional<at::ScalarType> type, bool fast) {
  invariant(a.is_contiguous() && b.t().is_contiguous(), "_scaled_mm takes a row-major and a column-major operand");
  invariant(a.size(1) % 16 == 0 && b.size(1) % 16 == 0, "_scaled_mm takes multiples of 16");
  invariant(!bias && !scale_result, "_scaled_mm has no bias and scales no result here");
  invariant(!(a.scalar_type() == at::kFloat8_e5m2 && (b.scalar_type() == at::kFloat8_e5m2 || fast)),
            "_scaled_mm takes one operand of e5m2 at most, and gradients are not summed fast");
  const bool rowwise = scale_a.scalar_type() == at::kFloat && scale_b.numel() > 1;
  invariant(!rowwise || (scale_a.sizes() == at::IntArrayRef({a.size(0), 1}) &&
                         scale_b.sizes() == at::IntArrayRef({1, b.size(1)})),
            "_scaled_mm takes a scale for each row and each column");
  const at::Tensor of_b = b.t();
  const at::Tensor left = a.to(at::kFloat) * spread_scales(scale_a, a);
  const at::Tensor right = of_b.to(at::kFloat) * spread_scales(rowwise ? scale_b.t() : scale_b, of_b);
  return at::mm(left, right.t()).to(type.value_or(a.scalar_type()));
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("mm.dtype_out", &mm_wide);
  library.impl("addmm.dtype_out", &addmm_wide);
  library.impl("_scaled_mm", &scaled_mm);
}

}  // namespace
}  // namespace trireme::test::gpu
