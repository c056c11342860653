// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>

#include "kernels/cuda.hpp"
#include "kernels/cuda/launchers.hpp"
#include "kernels/cuda/tensors.hpp"

namespace trireme::kernels::cuda {
namespace {

/// Adds the sums of losses [2, rows] to loss [2]; without z-loss that of the first row only.
void add_sums(const at::Tensor& losses, double z_loss, const at::Tensor& loss) {
  const std::int64_t rows = losses.size(1);
  add_sum(data<const double>(losses), rows, data<double>(loss));
  if (z_loss > 0) add_sum(data<const double>(losses) + rows, rows, data<double>(loss) + 1);
}

void loss_and_gradient(const at::Tensor& logits, const at::Tensor& targets, bool gradient, double scale, double z_loss,
                       const at::Tensor& loss) {
  const at::Tensor losses = at::empty({2, logits.size(0)}, loss.options());
  with_type(logits, [&]<class T>(T) {
    cross_entropy(matrix<T>(logits), data<const std::int32_t>(targets), gradient, static_cast<float>(scale),
                  static_cast<float>(z_loss), data<double>(losses));
  });
  add_sums(losses, z_loss, loss);
}

}  // namespace

void cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& loss) {
  loss_and_gradient(logits, targets, false, 0, 0, loss);
}

void cross_entropy_backward(const at::Tensor& logits, const at::Tensor& targets, double scale, double z_loss,
                            const at::Tensor& loss) {
  loss_and_gradient(logits, targets, true, scale, z_loss, loss);
}

void vocabulary_statistics(const at::Tensor& logits, const at::Tensor& targets, std::int64_t first,
                           const at::Tensor& statistics) {
  with_type(logits, [&]<class T>(T) {
    vocabulary_statistics(matrix<const T>(logits), data<const std::int32_t>(targets), first, data<float>(statistics));
  });
}

void combine_statistics(const at::Tensor& gathered, const at::Tensor& targets, const at::Tensor& softmax, double z_loss,
                        const at::Tensor& loss) {
  const std::int64_t count = gathered.size(1);
  const at::Tensor losses = at::empty({2, count}, loss.options());
  combine_statistics(data<const float>(gathered), gathered.size(0), data<const std::int32_t>(targets), count,
                     data<float>(softmax), static_cast<float>(z_loss), data<double>(losses));
  add_sums(losses, z_loss, loss);
}

void cross_entropy_gradient_part(const at::Tensor& logits, const at::Tensor& targets, std::int64_t first,
                                 const at::Tensor& softmax, double scale, double z_loss) {
  with_type(logits, [&]<class T>(T) {
    cross_entropy_gradient_part(matrix<T>(logits), data<const std::int32_t>(targets), first, data<const float>(softmax),
                                static_cast<float>(scale), static_cast<float>(z_loss));
  });
}

}  // namespace trireme::kernels::cuda
