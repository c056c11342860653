// SPDX-License-Identifier: Apache-2.0
//
// bf16 products by cuBLASLt, with the algorithm that was the fastest of its candidates; fp32 ones by libtorch.
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include "kernels/cuda.hpp"
#include "kernels/cuda/blas.hpp"
#include "trireme/base/error.hpp"

namespace trireme::kernels::cuda {
namespace {

/// a b, or a b + c.
at::Tensor product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c = {}) {
  at::Tensor d = at::empty({a.size(0), b.size(1)}, a.options());
  if (multiply(a, b, c, d)) return d;
  return c.defined() ? at::addmm_out(d, c, a, b) : at::mm_out(d, a, b);
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

}  // namespace trireme::kernels::cuda
