// SPDX-License-Identifier: Apache-2.0
//
// bf16 products by cuBLASLt, with the algorithm that was the fastest of its candidates; fp32 and fp8 ones by libtorch.
#include <ATen/ops/_scaled_mm.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include "kernels/cuda.hpp"
#include "kernels/cuda/blas.hpp"
#include "kernels/cuda/launchers.hpp"
#include "kernels/cuda/tensors.hpp"
#include "trireme/base/ceil_div.hpp"
#include "trireme/base/error.hpp"

namespace trireme::kernels::cuda {
namespace {

/// a b, or a b + c.
at::Tensor product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c = {}) {
  at::Tensor d = at::empty({a.size(0), b.size(1)}, a.options());
  if (multiply(a, b, c, d)) return d;
  return c.defined() ? at::addmm_out(d, c, a, b) : at::mm_out(d, a, b);
}

std::int64_t up(std::int64_t size, std::int64_t multiple) { return ceil_div(size, multiple) * multiple; }

/// a b^T of their values, in `type`.
at::Tensor fp8_product(const Fp8Operand& a, const Fp8Operand& b, bool rowwise, at::ScalarType type, bool fast) {
  return at::_scaled_mm(a.values, b.values.t(), a.scales, rowwise ? b.scales.t() : b.scales, {}, {}, type, fast);
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& w) { return product(x, w.t()); }

at::Tensor linear_add(const at::Tensor& x, const at::Tensor& w, const at::Tensor& residual) {
  return product(x, w.t(), residual);
}

at::Tensor linear_backward_input(const at::Tensor& d_y, const at::Tensor& w) {
  return product(d_y.to(w.scalar_type()), w);
}

void linear_backward_weight(const at::Tensor& d_y, const at::Tensor& x, const Grad& grad) {
  invariant(grad.tensor.is_contiguous() && grad.tensor.scalar_type() == at::kFloat,
            "linear_backward_weight: the gradient must be contiguous fp32");
  const at::Tensor d_y_t = d_y.to(x.scalar_type()).t();
  at::Tensor to = grad.tensor;
  if (multiply(d_y_t, x, grad.accumulate ? to : at::Tensor(), to)) return;
  if (x.scalar_type() == at::kFloat)
    grad.accumulate ? to.addmm_(d_y_t, x) : at::mm_out(to, d_y_t, x);
  else
    grad.accumulate ? at::addmm_out(to, to, d_y_t, x, at::kFloat) : at::mm_out(to, d_y_t, x, at::kFloat);
}

Fp8Operand fp8_quantize(const at::Tensor& x, const Fp8Rounding& rounding) {
  const bool down = rounding.sum == Fp8Sum::down_columns;
  const std::int64_t outer = down ? x.size(1) : x.size(0), inner = down ? x.size(0) : x.size(1);
  invariant(inner % fp8_multiple(rounding.recipe) == 0, "an fp8 product sums over no multiple of its blocks");
  const auto of_type = [&](at::ScalarType type) { return x.options().dtype(type); };
  Fp8Operand out{.values = at::empty({outer, inner},
                                     of_type(rounding.type == Fp8Type::e4m3 ? at::kFloat8_e4m3fn : at::kFloat8_e5m2)),
                 .scales = {}};
  at::Tensor maxima;
  if (rounding.recipe == Fp8::mx)  // rows and blocks that fill the last tiles have scales, too
    out.scales = at::zeros({up(outer, 128) * up(inner / mx_block, 4)}, of_type(at::kByte)).view(at::kFloat8_e8m0fnu);
  else
    out.scales = at::empty({rounding.recipe == Fp8::rowwise ? outer : 1, 1}, of_type(at::kFloat));
  if (rounding.recipe == Fp8::tensorwise || (rounding.recipe == Fp8::rowwise && down))
    maxima = at::empty({fp8_maxima_chunks(x.size(0)), x.size(1)}, of_type(at::kInt));
  with_type(x, [&]<class T>(T) {
    fp8_quantize(Fp8Quantize<T>{.x = matrix<const T>(x),
                                .recipe = rounding.recipe,
                                .type = rounding.type,
                                .down_columns = down,
                                .codes = data<std::uint8_t>(out.values),
                                .scales = rounding.recipe == Fp8::mx ? nullptr : data<float>(out.scales),
                                .mx_scales = rounding.recipe == Fp8::mx ? data<std::uint8_t>(out.scales) : nullptr,
                                .maxima = maxima.defined() ? data<std::uint32_t>(maxima) : nullptr});
  });
  return out;
}

at::Tensor fp8_linear(Fp8 recipe, const at::Tensor& x, const at::Tensor& w) {
  const Fp8Rounding rounding{.recipe = recipe};
  return fp8_product(fp8_quantize(x, rounding), fp8_quantize(w, rounding), recipe == Fp8::rowwise, x.scalar_type(),
                     /*fast=*/true);
}

at::Tensor fp8_backward_input(Fp8 recipe, const at::Tensor& d_y, const at::Tensor& w) {
  // Hopper's fast sums have 14 bits (DeepSeek-V3 2024, 3.3.2): too few for gradients.
  return fp8_product(fp8_quantize(d_y, {.recipe = recipe, .type = fp8_gradient_type(recipe)}),
                     fp8_quantize(w, {.recipe = recipe, .sum = Fp8Sum::down_columns}), recipe == Fp8::rowwise,
                     w.scalar_type(), /*fast=*/false);
}

}  // namespace trireme::kernels::cuda
