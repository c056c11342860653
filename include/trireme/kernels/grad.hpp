// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme::kernels {

/// Destination of a parameter's gradient.
struct Grad {
  at::Tensor tensor;  ///< fp32, the parameter's shape, contiguous: a view into the flat gradient buffer
  bool accumulate;    ///< false: overwrite (beta 0, previous contents ignored, even NaN); true: add (beta 1)
};

}  // namespace trireme::kernels
