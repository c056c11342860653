// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/gemm.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "kernels/cuda.hpp"
#include "kernels/simd/block_product.hpp"
#include "kernels/simd/rows.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/kernels/cast.hpp"
#include "trireme/kernels/fp8.hpp"
#include "trireme/kernels/gemm_library.hpp"
#include "trireme/kernels/product_workspace.hpp"

namespace trireme::kernels {
namespace {

/// Elements of a weight gradient's tile: 1 MB in bf16, so that it is still in cache when it is added into the fp32
/// buffer.
constexpr std::int64_t tile_elements = 1 << 19;

GemmChoice& current_choice() {
  static GemmChoice choice;
  return choice;
}

/// w: [outputs, inputs].
const GemmChoice::Products& products_for(const at::Tensor& w) {
  return current_choice().of(w.scalar_type(), w.size(0), w.size(1));
}

/// a b^T by at::mm or oneDNN; each can be a transposed view.
at::Tensor product(GemmLibrary library, const at::Tensor& a, const at::Tensor& b) {
  return library == GemmLibrary::onednn ? onednn_product(a, b) : at::mm(a, b.t());
}

/// d_y^T x tile by tile: each tile is computed in the compute type and then converted into, or added to, the fp32
/// gradient.
void weight_in_tiles(GemmLibrary library, const at::Tensor& d_y, const at::Tensor& x, const Grad& grad) {
  const std::int64_t step = std::max<std::int64_t>(64, tile_elements / std::max<std::int64_t>(1, x.size(1)));
  for (std::int64_t begin = 0; begin < d_y.size(1); begin += step) {
    const std::int64_t end = std::min(d_y.size(1), begin + step);
    const at::Tensor tile = product(library, d_y.slice(1, begin, end).t(), x.t());
    const at::Tensor to = grad.tensor.slice(0, begin, end);
    grad.accumulate ? add_into(tile, to) : cast(tile, to);
  }
}

}  // namespace

at::Tensor linear(GemmLibrary library, const at::Tensor& x, const at::Tensor& w) {
  return library == GemmLibrary::blocked ? blocked_linear(x, w, {}) : product(library, x, w);
}

at::Tensor linear_add(GemmLibrary library, const at::Tensor& x, const at::Tensor& w, const at::Tensor& residual) {
  if (library == GemmLibrary::blocked) return blocked_linear(x, w, residual);
  if (library == GemmLibrary::at) return at::addmm(residual, x, w.t());
  return product(library, x, w).add_(residual);
}

at::Tensor linear_backward_input(GemmLibrary library, const at::Tensor& d_y, const at::Tensor& w) {
  if (library == GemmLibrary::blocked) return blocked_backward_input(d_y, w);
  return product(library, d_y.to(w.scalar_type()), w.t());
}

void linear_backward_weight(GemmLibrary library, const at::Tensor& d_y, const at::Tensor& x, const Grad& grad) {
  invariant(grad.tensor.is_contiguous() && grad.tensor.scalar_type() == at::kFloat,
            "linear_backward_weight: the gradient must be contiguous fp32");
  if (library == GemmLibrary::blocked) return blocked_backward_weight(d_y, x, grad, multiplies_pairs());
  if (library == GemmLibrary::onednn || x.scalar_type() != at::kFloat) {
    return weight_in_tiles(library, d_y.to(x.scalar_type()), x, grad);
  }
  at::Tensor to = grad.tensor;
  grad.accumulate ? to.addmm_(d_y.t(), x) : at::mm_out(to, d_y.t(), x);
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& w, Fp8 fp8) {
  if (fp8 != Fp8::none) return fp8_linear(fp8, x, w);
  return x.is_cuda() ? cuda::linear(x, w) : linear(products_for(w).forward, x, w);
}

at::Tensor linear_add(const at::Tensor& x, const at::Tensor& w, const at::Tensor& residual, Fp8 fp8) {
  if (fp8 != Fp8::none) return fp8_linear(fp8, x, w).add_(residual);
  if (x.is_cuda()) return cuda::linear_add(x, w, residual);
  return linear_add(products_for(w).forward, x, w, residual);
}

at::Tensor linear_wide(const at::Tensor& x, const at::Tensor& w) {
  if (x.is_cuda()) return cuda::linear(x, w);
  const GemmLibrary library = products_for(w).forward;
  return library == GemmLibrary::blocked ? blocked_linear_wide(x, w) : linear(library, x, w);
}

at::Tensor linear_backward_input(const at::Tensor& d_y, const at::Tensor& w, Fp8 fp8) {
  if (fp8 != Fp8::none) return fp8_backward_input(fp8, d_y, w);
  if (w.is_cuda()) return cuda::linear_backward_input(d_y, w);
  return linear_backward_input(products_for(w).backward_input, d_y, w);
}

void linear_backward_weight(const at::Tensor& d_y, const at::Tensor& x, const Grad& grad) {
  if (x.is_cuda()) return cuda::linear_backward_weight(d_y, x, grad);
  const GemmChoice::Products& products = current_choice().of(x.scalar_type(), d_y.size(1), x.size(1));
  linear_backward_weight(products.backward_weight, d_y, x, grad);
}

std::shared_ptr<const void> keep_product_workspace(at::Device device, DType compute) {
  if (!device.is_cuda()) return nullptr;
  if (compute == DType::bf16) return cuda::keep_product_workspace(device);
  const device::ChargeTo charge(device::Category::workspace);
  const at::Tensor one = at::zeros({1, 1}, at::TensorOptions(at::kFloat).device(device));
  (void)at::mm(one, one);
  return nullptr;
}

void set_gemm_choice(const GemmChoice& choice) { current_choice() = choice; }

const GemmChoice& gemm_choice() { return current_choice(); }

bool can_multiply_pairs() { return has_pair_products; }

bool multiplies_pairs() { return has_pair_products && current_choice().pairs; }

}  // namespace trireme::kernels
