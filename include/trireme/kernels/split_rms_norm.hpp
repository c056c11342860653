// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/kernels/grad.hpp"

namespace trireme::kernels {

// RMSNorm (rms_norm.hpp) of rows whose columns are divided over ranks: the computation of one rank before and
// after the sums over all. rms_norm_again applies the norm.

/// Writes the sum of the squares of each row. x: [N, D], rows may be apart; sums: [N] fp32.
void row_squares(const at::Tensor& x, const at::Tensor& sums);

/// For the gradient by x, rstd w d_y - x s where s = rstd^2 / width * (sum over all columns of rstd w d_y x), writes
/// the first term to d_x, this rank's term of s to `sums` [N] fp32, and the gradient by this rank's part of the weight.
/// width: columns that are summed over, as a number of elements. d_x may be d_y.
void split_rms_norm_backward(const at::Tensor& d_y, const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& rstd, double width, const at::Tensor& d_x, const at::Tensor& sums,
                             const Grad& d_weight, float offset = 0);

/// d_x -= x * sums, row by row, in fp32: the second term. On the host by the calling thread alone, which may have no
/// team.
void subtract_scaled_rows(const at::Tensor& x, const at::Tensor& sums, const at::Tensor& d_x);

}  // namespace trireme::kernels
