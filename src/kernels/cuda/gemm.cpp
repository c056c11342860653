// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include "kernels/cuda.hpp"
#include "trireme/base/error.hpp"

namespace trireme::kernels::cuda {

at::Tensor linear(const at::Tensor& x, const at::Tensor& w) { return at::mm(x, w.t()); }

at::Tensor linear_add(const at::Tensor& x, const at::Tensor& w, const at::Tensor& residual) {
  return at::addmm(residual, x, w.t());
}

at::Tensor linear_backward_input(const at::Tensor& d_y, const at::Tensor& w) {
  return at::mm(d_y.to(w.scalar_type()), w);
}

void linear_backward_weight(const at::Tensor& d_y, const at::Tensor& x, const Grad& grad) {
  invariant(grad.tensor.is_contiguous() && grad.tensor.scalar_type() == at::kFloat,
            "linear_backward_weight: the gradient must be contiguous fp32");
  const at::Tensor d_y_t = d_y.to(x.scalar_type()).t();
  at::Tensor to = grad.tensor;
  if (x.scalar_type() == at::kFloat)
    grad.accumulate ? to.addmm_(d_y_t, x) : at::mm_out(to, d_y_t, x);
  else
    grad.accumulate ? at::addmm_out(to, to, d_y_t, x, at::kFloat) : at::mm_out(to, d_y_t, x, at::kFloat);
}

}  // namespace trireme::kernels::cuda
